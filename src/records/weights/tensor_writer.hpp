// SPDX-License-Identifier: Apache-2.0
// Writes the tensors of a stored model to a new file, one after the other, as the file's format
// needs them: transposed, cut to some rows, followed by rows of zeros, in fp32 or bf16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "files/descriptor.hpp"

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
  /// Swap consecutive groups of this many elements; 0: do not. Requires: not transposed.
  std::int64_t swapped = 0;
};

class TensorWriter {
 public:
  /// `model` must outlive the writer; `type` is f32 or bf16.
  TensorWriter(const StoredModel& model, StoredType type)
      : model_(model), reader_(model), type_(type) {}

  /// Throws UserError if the tensor does not match its content hash; StorageError.
  void write(const TensorOutput& output, files::Descriptor& file);

 private:
  void write_straight(const TensorOutput& output, files::Descriptor& file);
  void write_transposed(const TensorOutput& output, files::Descriptor& file);
  /// Writes transposed_ with the groups of each pair swapped.
  void put_swapped(std::int64_t swapped, files::Descriptor& file);
  void write_zeros(std::int64_t elements, files::Descriptor& file);
  void put(const float* values, std::int64_t count, files::Descriptor& file);
  void expect_hash(const StoredTensor& tensor, std::uint64_t hash) const;

  const StoredModel& model_;
  TensorReader reader_;
  const StoredType type_;
  std::vector<float> values_, transposed_;
  std::vector<std::uint16_t> rounded_;
};

}  // namespace trireme::weights
