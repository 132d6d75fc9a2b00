// SPDX-License-Identifier: Apache-2.0
// Writes the tensors of a stored model to a new file, one after the other, as the file's format
// needs them: transposed, cut to some rows, followed by rows of zeros, in any stored type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "files/descriptor.hpp"

#include "weights/family.hpp"
#include "weights/stored_model.hpp"
#include "weights/tensor_reader.hpp"

namespace trireme::weights {

/// How one tensor is written.
struct TensorOutput {
  /// Its name, shape, and how the order of its elements differs from ours.
  TheirTensor their = {};
  const StoredTensor* tensor = nullptr;  ///< null: only zeros
  std::int64_t elements = 0;             ///< of the tensor, from their.begin on
  std::int64_t zeros = 0;                ///< number of zeros after them
  StoredType type = StoredType::f32;
  /// Of the parameter, if the tensor has its first ones and is not all of several; else 0.
  std::int64_t elements_of_parameter = 0;

  /// As it is stored, row-major.
  [[nodiscard]] std::vector<std::int64_t> stored_shape() const;
  [[nodiscard]] std::int64_t bytes() const { return bytes_of(type, elements + zeros); }
};

class TensorWriter {
 public:
  /// `model` must outlive the writer.
  explicit TensorWriter(const StoredModel& model) : model_(model), reader_(model) {}

  /// Throws UserError if the tensor does not match its content hash; StorageError.
  void write(const TensorOutput& output, files::Descriptor& file);

 private:
  void write_straight(const TensorOutput& output, files::Descriptor& file);
  /// In another order, with the whole tensor in memory.
  void write_reordered(const TensorOutput& output, files::Descriptor& file);
  void write_zeros(std::int64_t elements, files::Descriptor& file);
  void put(const float* values, std::int64_t count, files::Descriptor& file);

  const StoredModel& model_;
  TensorReader reader_;
  StoredType type_ = StoredType::f32;  // of the tensor that is being written
  std::vector<float> values_, reordered_;
  std::vector<std::byte> rounded_;
};

}  // namespace trireme::weights
