// SPDX-License-Identifier: Apache-2.0
// Activation functions between the layers of an MLP.
#pragma once

#include <cstdint>
#include <utility>

#include "base/key.hpp"

namespace trireme::nn {

/// gelu: tanh form; squared_relu: max(0, x)²; swiglu: silu(gate) · up, from twice the channels.
enum class Activation : std::uint8_t { gelu, squared_relu, swiglu };

}  // namespace trireme::nn

template <>
struct trireme::EnumNames<trireme::nn::Activation> {
  using enum nn::Activation;
  static constexpr std::pair<nn::Activation, const char*> table[] = {
      {gelu, "gelu"}, {squared_relu, "squared_relu"}, {swiglu, "swiglu"}};
};
