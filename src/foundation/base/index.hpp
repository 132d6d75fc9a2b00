// SPDX-License-Identifier: Apache-2.0
// Index types that cannot be mixed up: a parameter, a bucket and a rank are not the same number.
// `at(index)` gives the std::size_t that containers take.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme {

/// Position in the registration order of the model's parameter table.
enum class ParameterIndex : std::int32_t {};
/// Position in the layout's bucket list; bucket 0 holds the last registered parameters and is ready
/// first.
enum class BucketIndex : std::int32_t {};

constexpr std::size_t at(ParameterIndex index) {
  return static_cast<std::size_t>(index);
}
constexpr std::size_t at(BucketIndex index) {
  return static_cast<std::size_t>(index);
}

}  // namespace trireme
