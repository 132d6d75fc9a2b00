// SPDX-License-Identifier: Apache-2.0
#include "model/window_pattern.hpp"

namespace trireme::model {

LongLayers long_layers(std::string_view pattern, std::int64_t layers) {
  LongLayers found;
  const auto count = static_cast<std::size_t>(layers);
  if (pattern.empty() || pattern.size() > count || layers > most_layers)
    return found;
  for (std::size_t l = 0; l < count; ++l)
    found[l] = pattern[l % pattern.size()] == 'L' || (l + 1 == count && pattern.size() < count);
  return found;
}

std::string pattern_of(const LongLayers& long_layers, std::int64_t layers) {
  std::string pattern;
  for (std::int64_t l = 0; l < layers; ++l)
    pattern += long_layers[static_cast<std::size_t>(l)] ? 'L' : 'S';
  return pattern;
}

}  // namespace trireme::model
