// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.hpp"

#include <utility>

#include "nn/layer_norm.hpp"
#include "ops/elementwise.hpp"

namespace trireme::nn {

Linear::Linear(Registry& registry, const std::string& name, LinearConfig config)
    : config_(std::move(config)),
      weight_(registry.add(
          name + ".weight", {config_.out, config_.in}, {.deviation = config_.deviation})) {
  registry.set_matrices(weight_, config_.parts.empty() ? std::vector{config_.out} : config_.parts);
  if (config_.bias)
    bias_ = registry.add(name + ".bias", {config_.out}, {});
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
  products_.push_back(&kernels.linear(shape(size), !size.cache.given()));
}

void Linear::list(ProductList& list) const {
  list.add(
      {.layer = config_.role, .products = shape(list.size()), .bias_is_fused = bias_is_fused_});
}

double Linear::flops_per_token() const {
  return 6.0 * static_cast<double>(config_.out * (config_.in + (config_.bias ? 1 : 0)));
}

void Linear::request_bias_sums(LayerNorm& next) {
  bias_is_fused_ = bias_ != absent && next.accept_bias_sums(bias_);
}

void Linear::forward(const Call& call, View y, ConstView x) const {
  products(call).forward(y, x, call.value(weight_), call.value(bias_), call.stream);
}

void Linear::forward_gelu(const Call& call, View y, View z, ConstView x) const {
  products(call).forward_gelu(y, z, x, call.value(weight_), call.value(bias_), call.stream);
}

void Linear::backward_parameters(const Call& call, ConstView dy, ConstView x) const {
  const bool sums_bias = bias_ != absent && !bias_is_fused_;
  if (sums_bias && products(call).sums_bias()) {
    const View dbias = call.gradient(bias_), dweight = call.gradient(weight_);
    products(call).backward_weight_and_bias(dweight, dbias, dy, x, call.stream);
    call.ready(bias_);
    call.ready(weight_);
    return;
  }
  if (sums_bias)
    run(ops::BiasBackward{.db = call.gradient(bias_), .dy = dy}, call.stream);
  call.ready(bias_);
  products(call).backward_weight(call.gradient(weight_), dy, x, call.stream);
  call.ready(weight_);
}

void Linear::backward_input(const Call& call, View dx, ConstView dy) const {
  products(call).backward_input(dx, dy, call.value(weight_), call.stream);
}

void Linear::backward_input_gelu(const Call& call, View dz, View z, ConstView dy) const {
  products(call).backward_input_gelu(dz, z, dy, call.value(weight_), call.stream);
}

}  // namespace trireme::nn
