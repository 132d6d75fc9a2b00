// SPDX-License-Identifier: Apache-2.0
// Reads ranges of a stored model's parameters as fp32, in the order of ours, and of the files
// nothing but the bytes of those ranges.
//
// 1. A range of a transposed tensor is read as a strip of columns, one run of bytes for each of its
//    rows; a strip as wide as the tensor as one run.
// 2. Memory besides the caller's is bounded by `block_elements`, whatever the tensor's size.
// 3. A reader belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/view.hpp"
#include "files/input_file.hpp"

#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Read and turned at a time.
inline constexpr std::int64_t block_elements = std::int64_t{1} << 20;

class TensorReader {
 public:
  /// `model` must outlive the reader.
  explicit TensorReader(const StoredModel& model) : model_(model) {}

  /// Elements [begin, begin + values.elements) of `tensor`, one of the model's. `values` is fp32
  /// memory of the host. Throws StorageError, also for a file that was cut meanwhile.
  void read(const StoredTensor& tensor, std::int64_t begin, View values);

 private:
  /// Stored elements, in stored order.
  void read_stored(const StoredTensor& tensor, std::int64_t begin, std::int64_t count, float* to);
  /// Columns [first, first + width) of the stored matrix, in its rows [row, row + rows), to the
  /// places that they have in `values`, which begins with element `begin`.
  void read_strip(const StoredTensor& tensor,
                  std::int64_t first,
                  std::int64_t width,
                  std::int64_t row,
                  std::int64_t rows,
                  std::int64_t begin,
                  float* values);
  const files::InputFile& file(std::int64_t index);

  const StoredModel& model_;
  std::map<std::int64_t, files::InputFile> files_;
  std::vector<std::byte> bytes_;
  std::vector<float> block_;
};

}  // namespace trireme::weights
