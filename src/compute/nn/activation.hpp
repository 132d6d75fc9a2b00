// SPDX-License-Identifier: Apache-2.0
// The activations between the two layers of an MLP.
#pragma once

#include <cstdint>
#include <utility>

#include "base/key.hpp"

namespace trireme::nn {

/// gelu: in its tanh form; squared_relu: max(0, x)²; swiglu: silu(gate) · up, of twice the
/// channels.
enum class Activation : std::uint8_t { gelu, squared_relu, swiglu };

}  // namespace trireme::nn

template <>
struct trireme::EnumNames<trireme::nn::Activation> {
  using enum nn::Activation;
  static constexpr std::pair<nn::Activation, const char*> table[] = {
      {gelu, "gelu"}, {squared_relu, "squared_relu"}, {swiglu, "swiglu"}};
};
