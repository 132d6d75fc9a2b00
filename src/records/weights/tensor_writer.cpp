// SPDX-License-Identifier: Apache-2.0
#include "weights/tensor_writer.hpp"

#include <algorithm>
#include <span>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace trireme::weights {

std::vector<std::int64_t> TensorOutput::stored_shape() const {
  std::vector<std::int64_t> shape = their.shape;
  if (their.transposed)
    std::ranges::reverse(shape);
  return shape;
}

void TensorWriter::write(const TensorOutput& output, files::Descriptor& file) {
  type_ = output.type;
  if (output.tensor != nullptr &&
      (output.their.transposed || output.their.head_rows != HeadRows::ours))
    write_reordered(output, file);
  else if (output.tensor != nullptr)
    write_straight(output, file);
  write_zeros(output.zeros, file);
}

void TensorWriter::write_straight(const TensorOutput& output, files::Descriptor& file) {
  const StoredTensor& tensor = *output.tensor;
  std::uint64_t hash = 0;
  reader_.each_block(tensor, tensor.elements(), [&](std::int64_t at, std::span<float> values) {
    const auto count = std::ssize(values);
    if (tensor.content_hash)
      hash += hash_elements(view_of(values.data(), count), at);
    const std::int64_t begin = std::clamp<std::int64_t>(output.their.begin - at, 0, count);
    const std::int64_t end =
        std::clamp<std::int64_t>(output.their.begin + output.elements - at, begin, count);
    put(values.data() + begin, end - begin, file);
  });
  model_.expect_hash(tensor, hash);
}

void TensorWriter::write_reordered(const TensorOutput& output, files::Descriptor& file) {
  const StoredTensor& tensor = *output.tensor;
  const std::int64_t rows = output.their.shape.at(0), width = output.elements / rows;
  values_.resize(static_cast<std::size_t>(tensor.elements()));
  const View whole = view_of(values_.data(), tensor.elements());
  reader_.read(tensor, 0, whole);
  model_.expect_hash(tensor, tensor.content_hash ? hash_elements(whole, 0) : 0);
  const float* const from = values_.data() + output.their.begin;
  const std::int64_t lines = output.their.transposed ? width : rows;  // of the file
  const std::int64_t line = output.elements / lines;
  const std::int64_t most = std::max<std::int64_t>(1, block_elements / line);
  for (std::int64_t first = 0; first < lines; first += most) {
    const std::int64_t count = std::min(most, lines - first);
    reordered_.resize(static_cast<std::size_t>(count * line));
    if (output.their.transposed)
      transpose(from + first, width, rows, count, reordered_.data(), rows);
    else
      for (std::int64_t i = 0; i < count; ++i)
        std::copy_n(from + output.their.our_row(first + i) * width, width,
                    reordered_.data() + i * width);
    put(reordered_.data(), count * line, file);
  }
}

void TensorWriter::write_zeros(std::int64_t elements, files::Descriptor& file) {
  values_.assign(static_cast<std::size_t>(std::min(elements, block_elements)), 0.0F);
  for (std::int64_t at = 0; at < elements; at += block_elements)
    put(values_.data(), std::min(block_elements, elements - at), file);
}

void TensorWriter::put(const float* values, std::int64_t count, files::Descriptor& file) {
  const auto size = static_cast<std::size_t>(count);
  if (type_ == StoredType::f32)
    return file.write(std::as_bytes(std::span(values, size)));
  rounded_.clear();
  from_fp32(type_, {values, size}, rounded_);
  file.write(rounded_);
}

}  // namespace trireme::weights
