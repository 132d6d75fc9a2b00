// SPDX-License-Identifier: Apache-2.0
// What forward drops and backward computes again, to the same bits.
#pragma once

#include <cstdint>
#include <utility>

#include "base/key.hpp"

namespace trireme::nn {

/// none: everything is kept; gelu: all but the outputs of activation functions, a quarter of it;
/// block: only what enters each block.
enum class Recompute : std::uint8_t { none, gelu, block };

}  // namespace trireme::nn

template <>
struct trireme::EnumNames<trireme::nn::Recompute> {
  using enum nn::Recompute;
  static constexpr std::pair<nn::Recompute, const char*> table[] = {
      {none, "none"}, {gelu, "gelu"}, {block, "block"}};
};
