// SPDX-License-Identifier: Apache-2.0
#include "weights/stored_model.hpp"

#include <fmt/format.h>

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

}  // namespace trireme::weights
