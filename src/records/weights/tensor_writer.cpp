// SPDX-License-Identifier: Apache-2.0
#include "weights/tensor_writer.hpp"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "weights/transpose.hpp"

namespace trireme::weights {

void TensorWriter::write(const TensorOutput& output, files::Descriptor& file) {
  type_ = output.type;
  if (output.tensor != nullptr && output.transposed)
    write_transposed(output, file);
  else if (output.tensor != nullptr)
    write_straight(output, file);
  write_zeros(output.zeros, file);
}

void TensorWriter::write_straight(const TensorOutput& output, files::Descriptor& file) {
  const StoredTensor& tensor = *output.tensor;
  std::uint64_t hash = 0;
  transposed_.clear();
  for (std::int64_t at = 0; at < tensor.elements(); at += block_elements) {
    const std::int64_t count = std::min(block_elements, tensor.elements() - at);
    values_.resize(static_cast<std::size_t>(count));
    const View block = view_of(values_.data(), count);
    reader_.read(tensor, at, block);
    if (tensor.content_hash)
      hash += hash_elements(block, at);
    const std::int64_t begin = std::clamp<std::int64_t>(output.begin - at, 0, count);
    const std::int64_t end =
        std::clamp<std::int64_t>(output.begin + output.elements - at, begin, count);
    if (output.rows == nullptr)
      put(values_.data() + begin, end - begin, file);
    else
      transposed_.insert(transposed_.end(), values_.begin() + begin, values_.begin() + end);
  }
  if (output.rows != nullptr)
    put_rows(*output.rows, file);
  expect_hash(tensor, hash);
}

void TensorWriter::write_transposed(const TensorOutput& output, files::Descriptor& file) {
  const StoredTensor& tensor = *output.tensor;
  const std::int64_t out = tensor.shape.at(0), in = tensor.shape.at(1);
  TRIREME_EXPECT(output.elements == out * in, "{} elements of {}, transposed", output.elements,
                 tensor.parameter);
  values_.resize(static_cast<std::size_t>(out * in));
  const View whole = view_of(values_.data(), out * in);
  reader_.read(tensor, 0, whole);
  expect_hash(tensor, tensor.content_hash ? hash_elements(whole, 0) : 0);
  const std::int64_t most = std::max<std::int64_t>(1, block_elements / out);
  for (std::int64_t row = 0; row < in; row += most) {
    const std::int64_t rows = std::min(most, in - row);
    transposed_.resize(static_cast<std::size_t>(rows * out));
    transpose(values_.data() + row, in, out, rows, transposed_.data(), out);
    put(transposed_.data(), rows * out, file);
  }
}

void TensorWriter::put_rows(const TheirTensor& rows, files::Descriptor& file) {
  const std::int64_t count = rows.shape.at(0), width = rows.elements() / count;
  values_.resize(transposed_.size());
  for (std::int64_t row = 0; row < count; ++row)
    std::copy_n(transposed_.data() + rows.our_row(row) * width, width,
                values_.data() + row * width);
  put(values_.data(), std::ssize(values_), file);
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

void TensorWriter::expect_hash(const StoredTensor& tensor, std::uint64_t hash) const {
  if (tensor.content_hash && hash != *tensor.content_hash)
    model_.refuse_damage(tensor);
}

}  // namespace trireme::weights
