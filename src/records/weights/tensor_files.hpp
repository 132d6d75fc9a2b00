// SPDX-License-Identifier: Apache-2.0
// Reads ranges of a stored model's parameters, and no other bytes, as fp32 in our element order.
//
// 1. A range of a transposed tensor is read as a strip of columns, with one read per row; a strip
//    as wide as the tensor needs one read.
// 2. Temporary memory is bounded by `block_elements`, whatever the tensor's size.
// 3. A reader may only be used by one thread.
//
// Also writes parameters to a new file in the order and layout of its format: transposed, limited
// to some rows, padded with rows of zeros, in any stored type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/view.hpp"
#include "files/descriptor.hpp"

#include "weights/family.hpp"
#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Number of elements read and transposed at a time.
inline constexpr std::int64_t block_elements = std::int64_t{1} << 20;

class TensorReader {
 public:
  /// `model` must outlive the reader.
  explicit TensorReader(const StoredModel& model) : model_(model) {}

  /// Reads elements [begin, begin + values.elements) of `tensor`, one of the model's, into
  /// `values`, fp32 host memory. Throws StorageError, also if a file was truncated since.
  void read(const StoredTensor& tensor, std::int64_t begin, View values);
  /// Calls take(begin, values) for the first `elements`, block by block.
  template <class Take>
  void each_block(const StoredTensor& tensor, std::int64_t elements, Take&& take) {
    std::vector<float> values;
    for (std::int64_t at = 0; at < elements; at += block_elements) {
      values.resize(static_cast<std::size_t>(std::min(block_elements, elements - at)));
      read(tensor, at, view_of(values.data(), std::ssize(values)));
      take(at, std::span(values));
    }
  }
  /// Sum of element_hash over the first `elements` after rounding to `type`.
  std::uint64_t hash(const StoredTensor& tensor,
                     std::int64_t elements,
                     StoredType type = StoredType::f32);

 private:
  /// Reads stored elements in stored order.
  void read_stored(const StoredTensor& tensor, std::int64_t begin, std::int64_t count, float* to);
  /// Reads columns [first, first + width) of rows [row, row + rows) of the stored matrix into their
  /// places in `values`, whose first element is element `begin` of the parameter.
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

/// How one tensor is written.
struct TensorOutput {
  /// Name and shape in the file, and how its element order differs from ours.
  TheirTensor their = {};
  const StoredTensor* tensor = nullptr;  ///< null: only zeros
  std::int64_t elements = 0;             ///< of the tensor, from their.begin on
  std::int64_t zeros = 0;                ///< number of zeros after them
  StoredType type = StoredType::f32;
  /// Elements of the parameter if the tensor begins with its first element; else 0.
  std::int64_t elements_of_parameter = 0;

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
  void write_stored(const TensorOutput& output, files::Descriptor& file);
  void put(StoredType type, std::span<const float> values, files::Descriptor& file);

  const StoredModel& model_;
  TensorReader reader_;
  std::vector<float> values_;
  std::vector<std::byte> rounded_;
};

}  // namespace trireme::weights
