// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.hpp"

#include <utility>

#include "nn/layer_norm.hpp"

namespace trireme::nn {

Linear::Linear(Registry& registry, const std::string& name, LinearConfig config)
    : config_(std::move(config)),
      weight_(registry.add(
          {.name = name + ".weight",
           .shape = {config_.out, config_.in},
           .matrices = config_.parts.empty() ? std::vector{config_.out} : config_.parts},
          {.deviation = config_.deviation})) {
  if (config_.bias)
    bias_ = registry.add({.name = name + ".bias", .shape = {config_.out}}, {});
}

LinearShape Linear::shape(const BatchSize& size) const {
  return {.rows = size.rows(),
          .in = config_.in,
          .out = config_.out,
          .bias = config_.bias,
          .dtype = size.dtype,
          .y = size.dtype,
          .gelu_after = gelu_after_,
          .gelu_before = config_.gelu_before};
}

void Linear::prepare(Kernels& kernels, const BatchSize& size) {
  products_.push_back(kernels.linear(shape(size), !size.cache.given()));
}

void Linear::request_bias_sums(LayerNorm& next) {
  bias_is_fused_ = bias_ != absent && next.accept_bias_sums(bias_);
}

void Linear::forward(const Call& call, View y, ConstView x, View z) const {
  (*products(call).forward)(
      {.a = x, .b = call.value(weight_), .bias = call.value(bias_), .z = z, .c = y}, call.stream);
}

void Linear::backward_parameters(const Call& call, ConstView dy, ConstView x) const {
  const View dbias = call.gradient(bias_is_fused_ ? absent : bias_);
  (*products(call).weight_gradient)(
      {.a = dy, .b = x, .c = call.gradient(weight_), .row_sums = dbias}, call.stream);
  call.ready(bias_);
  call.ready(weight_);
}

void Linear::backward_input(const Call& call, View dx, ConstView dy, View z) const {
  (*products(call).input_gradient)({.a = dy, .b = call.value(weight_), .z = z, .c = dx},
                                   call.stream);
}

}  // namespace trireme::nn
