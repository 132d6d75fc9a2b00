// SPDX-License-Identifier: Apache-2.0
// Whether attention normalizes its queries and keys (nn/head_norm.hpp).
#pragma once

#include <cstdint>
#include <utility>

#include "base/key.hpp"

namespace trireme::nn {

enum class QkNorm : std::uint8_t { none, without_gain, with_gain };

}  // namespace trireme::nn

template <>
struct trireme::EnumNames<trireme::nn::QkNorm> {
  using enum nn::QkNorm;
  static constexpr std::pair<nn::QkNorm, const char*> table[] = {
      {none, "none"}, {without_gain, "without_gain"}, {with_gain, "with_gain"}};
};
