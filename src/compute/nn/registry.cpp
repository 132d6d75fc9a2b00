// SPDX-License-Identifier: Apache-2.0
#include "nn/registry.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

namespace trireme::nn {

ParameterIndex Registry::add(layout::Parameter parameter, Initial start) {
  const ParameterIndex index = next();
  parameter.decay = parameter.shape.size() >= 2;
  parameter.group = group_;
  table_.push_back(std::move(parameter));
  initial_.push_back(start);
  return index;
}

void Registry::initialize(ParameterIndex parameter,
                          std::uint64_t seed,
                          View values,
                          std::int64_t begin) const {
  TRIREME_EXPECT(parameter > absent && at(parameter) < table_.size(),
                 "parameter {} of a model with {}", static_cast<std::int32_t>(parameter),
                 table_.size());
  const layout::Parameter& which = table_[at(parameter)];
  const std::int64_t end = begin + values.elements;
  TRIREME_EXPECT(begin >= 0 && end <= which.elements(), "elements {} to {} of {}, which has {}",
                 begin, end, which.name, which.elements());
  const Initial start = initial_[at(parameter)];
  const RandomKey key = RandomKey::of(seed, Draw::initialize);
  auto* to = values.as<float>();
  // Four words make two normals.
#pragma omp parallel for schedule(static)
  for (std::int64_t pair = begin / 2; pair < (end + 1) / 2; ++pair) {
    const Words4 words = start.deviation > 0
                             ? philox(key, static_cast<std::uint64_t>(pair), at(parameter))
                             : Words4{};
    for (std::int64_t i = 0; i < 2; ++i)
      if (const std::int64_t element = 2 * pair + i; element >= begin && element < end)
        to[element - begin] =
            start.deviation > 0
                ? static_cast<float>(start.deviation * normal(words.w[2 * i], words.w[2 * i + 1]))
                : start.constant;
  }
}

}  // namespace trireme::nn
