// SPDX-License-Identifier: Apache-2.0
#include "weights/tensor_files.hpp"

#include "base/error.hpp"
#include "base/hash.hpp"

namespace trireme::weights {
namespace {

constexpr std::size_t most_open_files = 64;

/// to[c · to_stride + r] = from[r · from_stride + c], in tiles that fit into the L1 cache.
void transpose(const float* from,
               std::int64_t from_stride,
               std::int64_t rows,
               std::int64_t columns,
               float* to,
               std::int64_t to_stride) {
  constexpr std::int64_t tile = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += tile)
    for (std::int64_t c0 = 0; c0 < columns; c0 += tile)
      for (std::int64_t c = c0; c < std::min(c0 + tile, columns); ++c)
        for (std::int64_t r = r0; r < std::min(r0 + tile, rows); ++r)
          to[c * to_stride + r] = from[r * from_stride + c];
}

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
  if (output.tensor != nullptr)
    write_stored(output, file);
  values_.assign(static_cast<std::size_t>(std::min(output.zeros, block_elements)), 0.0F);
  for (std::int64_t at = 0; at < output.zeros; at += block_elements)
    put(output.type,
        std::span(values_).first(
            static_cast<std::size_t>(std::min(block_elements, output.zeros - at))),
        file);
}

void TensorWriter::write_stored(const TensorOutput& output, files::Descriptor& file) {
  const TheirTensor& their = output.their;
  StoredTensor tensor = *output.tensor;
  if (tensor.content_hash && their.begin == 0)  // once, if several of theirs are parts of it
    model_.expect_hash(tensor, reader_.hash(tensor, tensor.elements()));
  if (their.transposed) {  // the reader transposes tensors stored like this
    tensor.transposed = !tensor.transposed;
    std::ranges::reverse(tensor.shape);
  }
  const std::int64_t rows = their.head_rows == HeadRows::ours ? 1 : their.shape.at(0);
  const std::int64_t width = output.elements / rows;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t at = 0; at < width; at += block_elements) {
      values_.resize(static_cast<std::size_t>(std::min(block_elements, width - at)));
      reader_.read(tensor, their.begin + their.our_row(row) * width + at,
                   view_of(values_.data(), std::ssize(values_)));
      put(output.type, values_, file);
    }
}

void TensorWriter::put(StoredType type, std::span<const float> values, files::Descriptor& file) {
  if (type == StoredType::f32)
    return file.write(std::as_bytes(values));
  from_fp32(type, values, rounded_);
  file.write(rounded_);
}

}  // namespace trireme::weights
