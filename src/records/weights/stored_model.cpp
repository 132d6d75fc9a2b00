// SPDX-License-Identifier: Apache-2.0
#include "weights/stored_model.hpp"

#include <fmt/format.h>

#include "base/packing.hpp"

namespace trireme::weights {

std::int64_t StoredTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::string StoredModel::place_of(const StoredTensor& tensor) const {
  const std::string& file = tensor.extents.empty()
                                ? path
                                : files.at(static_cast<std::size_t>(tensor.extents.front().file));
  return fmt::format("{}: tensor '{}'", file, tensor.name);
}

std::string packed(const StoredModel& model) {
  Packer out;
  for (const std::string* text :
       {&model.path, &model.format, &model.shape_file, &model.tokenizer, &model.tokenizer_place})
    out.text(*text);
  out.number(model.shape);
  out.number(model.step);
  out.number(model.files.size());
  for (const std::string& file : model.files) out.text(file);
  out.number(model.tensors.size());
  for (const StoredTensor& tensor : model.tensors) {
    out.text(tensor.parameter);
    out.text(tensor.name);
    out.array(tensor.shape);
    out.number(tensor.type);
    out.number(tensor.transposed);
    out.array(tensor.extents);
    out.number(tensor.content_hash.has_value());
    out.number(tensor.content_hash.value_or(0));
  }
  return out.take();
}

StoredModel unpacked(std::string_view bytes) {
  Unpacker in(bytes);
  StoredModel model;
  for (std::string* text :
       {&model.path, &model.format, &model.shape_file, &model.tokenizer, &model.tokenizer_place})
    *text = in.text();
  model.shape = in.number<model::GptShape>();
  model.step = in.number<std::int64_t>();
  model.files.resize(in.number<std::size_t>());
  for (std::string& file : model.files) file = in.text();
  model.tensors.resize(in.number<std::size_t>());
  for (StoredTensor& tensor : model.tensors) {
    tensor.parameter = in.text();
    tensor.name = in.text();
    tensor.shape = in.array<std::int64_t>();
    tensor.type = in.number<StoredType>();
    tensor.transposed = in.number<bool>();
    tensor.extents = in.array<Extent>();
    const bool hashed = in.number<bool>();
    const auto hash = in.number<std::uint64_t>();
    if (hashed)
      tensor.content_hash = hash;
  }
  return model;
}

}  // namespace trireme::weights
