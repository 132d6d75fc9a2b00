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
  const StoredTensor* tensor = nullptr;  ///< null: only zeros
  bool transposed = false;               ///< as [in, out]
  std::int64_t elements = 0;             ///< of the tensor; all of them if transposed
  std::int64_t zeros = 0;                ///< number of zeros after them
  std::int64_t begin = 0;                ///< the first of `elements`
  StoredType type = StoredType::f32;
  /// Where the order of the rows differs from ours. Requires: not transposed.
  const TheirTensor* rows = nullptr;
};

class TensorWriter {
 public:
  /// `model` must outlive the writer.
  explicit TensorWriter(const StoredModel& model) : model_(model), reader_(model) {}

  /// Throws UserError if the tensor does not match its content hash; StorageError.
  void write(const TensorOutput& output, files::Descriptor& file);

 private:
  void write_straight(const TensorOutput& output, files::Descriptor& file);
  void write_transposed(const TensorOutput& output, files::Descriptor& file);
  /// Writes the rows in transposed_ in the order of the file.
  void put_rows(const TheirTensor& rows, files::Descriptor& file);
  void write_zeros(std::int64_t elements, files::Descriptor& file);
  void put(const float* values, std::int64_t count, files::Descriptor& file);
  void expect_hash(const StoredTensor& tensor, std::uint64_t hash) const;

  const StoredModel& model_;
  TensorReader reader_;
  StoredType type_ = StoredType::f32;  // of the tensor that is being written
  std::vector<float> values_, transposed_;
  std::vector<std::byte> rounded_;
};

}  // namespace trireme::weights
