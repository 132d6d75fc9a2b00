// SPDX-License-Identifier: Apache-2.0
#include "weights/tensor_files.hpp"

#include "base/error.hpp"
#include "base/hash.hpp"

namespace trireme::weights {
namespace {

constexpr std::size_t most_open_files = 64;

}  // namespace

void TensorReader::read(const StoredTensor& tensor, std::int64_t begin, View values) {
  TRIREME_EXPECT(begin >= 0 && values.elements <= tensor.elements() - begin,
                 "elements [{}, {}) of {}, which has {}", begin, begin + values.elements,
                 tensor.parameter, tensor.elements());
  auto* to = values.as<float>();
  if (!tensor.transposed)
    return read_stored(tensor, begin, values.elements, to);
  // Ours is [out, in]: the range consists of whole rows and parts of the first and the last row.
  const std::int64_t in = tensor.shape.at(1), end = begin + values.elements;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t out = at / in, column = at % in;
    if (column != 0 || end - at < in) {
      const std::int64_t count = std::min(in - column, end - at);
      read_strip(tensor, out, 1, column, count, begin, to);
      at += count;
    } else {
      const std::int64_t whole = (end - at) / in;
      read_strip(tensor, out, whole, 0, in, begin, to);
      at += whole * in;
    }
  }
}

std::uint64_t TensorReader::hash(const StoredTensor& tensor,
                                 std::int64_t elements,
                                 StoredType type) {
  std::uint64_t sum = 0;
  std::vector<std::byte> rounded;
  each_block(tensor, elements, [&](std::int64_t at, std::span<float> values) {
    from_fp32(type, values, rounded);
    to_fp32(type, rounded.data(), std::ssize(values), values.data());
    sum += hash_elements(view_of(values.data(), std::ssize(values)), at);
  });
  return sum;
}

void TensorReader::read_strip(const StoredTensor& tensor,
                              std::int64_t first,
                              std::int64_t width,
                              std::int64_t row,
                              std::int64_t rows,
                              std::int64_t begin,
                              float* values) {
  const std::int64_t out = tensor.shape.at(0), in = tensor.shape.at(1);
  const std::int64_t widest = std::min(width, block_elements);
  for (std::int64_t left = first; left < first + width; left += widest) {
    const std::int64_t columns = std::min(widest, first + width - left);
    const std::int64_t most_rows = std::max<std::int64_t>(1, block_elements / columns);
    for (std::int64_t top = row; top < row + rows; top += most_rows) {
      const std::int64_t height = std::min(most_rows, row + rows - top);
      block_.resize(static_cast<std::size_t>(height * columns));
      if (columns == out)
        read_stored(tensor, top * out, height * out, block_.data());
      else
        for (std::int64_t i = 0; i < height; ++i)
          read_stored(tensor, (top + i) * out + left, columns, block_.data() + i * columns);
      transpose(block_.data(), columns, height, columns, values + (left * in + top - begin), in);
    }
  }
}

void TensorReader::read_stored(const StoredTensor& tensor,
                               std::int64_t begin,
                               std::int64_t count,
                               float* to) {
  const auto size = static_cast<std::int64_t>(size_bytes(tensor.type));
  auto extent = std::ranges::upper_bound(tensor.extents, begin, {}, &Extent::begin);
  TRIREME_EXPECT(extent != tensor.extents.begin(), "{} has no element {}", tensor.name, begin);
  --extent;
  while (count > 0) {
    TRIREME_EXPECT(extent != tensor.extents.end() && extent->begin <= begin, "{} has no element {}",
                   tensor.name, begin);
    const std::int64_t part =
        std::min({count, extent->begin + extent->count - begin, block_elements});
    const std::int64_t offset = extent->offset + (begin - extent->begin) * size;
    const auto part_bytes = static_cast<std::size_t>(part * size);
    if (tensor.type == StoredType::f32) {
      file(extent->file).read(offset, {reinterpret_cast<std::byte*>(to), part_bytes});
    } else {
      bytes_.resize(part_bytes);
      file(extent->file).read(offset, bytes_);
      to_fp32(tensor.type, bytes_.data(), part, to);
    }
    begin += part;
    count -= part;
    to += part;
    if (begin == extent->begin + extent->count)
      ++extent;
  }
}

const files::InputFile& TensorReader::file(std::int64_t index) {
  const auto known = files_.find(index);
  if (known != files_.end())
    return known->second;
  if (files_.size() == most_open_files)
    files_.clear();
  return files_.emplace(index, files::InputFile(model_.files.at(static_cast<std::size_t>(index))))
      .first->second;
}

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
