// SPDX-License-Identifier: Apache-2.0
#include "weights/stored_model.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"

namespace trireme::weights {

bool Roles::within(std::int64_t tokens) const {
  return begin.value_or(0) < tokens && padding.value_or(0) < tokens &&
         std::ranges::all_of(ends, [&](std::int32_t id) { return id < tokens; });
}

std::int64_t StoredTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

void StoredModel::expect_hash(const StoredTensor& tensor, std::uint64_t hash) const {
  if (tensor.content_hash && hash != *tensor.content_hash)
    throw UserError({path}, fmt::format("the {} is damaged: {} does not match its content hash",
                                        format == "checkpoint" ? format : "model", tensor.name));
}

}  // namespace trireme::weights
