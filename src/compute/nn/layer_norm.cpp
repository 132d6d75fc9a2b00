// SPDX-License-Identifier: Apache-2.0
#include "nn/layer_norm.hpp"

#include <utility>

namespace trireme::nn {

LayerNorm::LayerNorm(Registry& registry,
                     const std::string& scope,
                     std::string name,
                     const LayerNormConfig& config)
    : name_(std::move(name)), config_(config) {
  if (config.gain)
    weight_ = registry.add({.name = scope + name_ + ".weight", .shape = {config.channels}},
                           {.constant = 1});
  if (config.bias && config.kind == ops::NormKind::layer)
    bias_ = registry.add({.name = scope + name_ + ".bias", .shape = {config.channels}}, {});
}

void LayerNorm::plan(Planner& planner, Retention how) {
  if (config_.kind == ops::NormKind::layer)
    mean_ = planner.retain(how, name_ + ".mean", 1, DType::f32);
  rstd_ = planner.retain(how, name_ + ".rstd", 1, DType::f32);
  output_ = planner.retain(how, name_, config_.channels);
}

ops::LayerNormForward LayerNorm::forward_of(const Call& call, ConstView x) const {
  return {.kind = config_.kind,
          .y = call.view(output_),
          .mean = call.view(mean_),
          .rstd = call.view(rstd_),
          .x = x,
          .gamma = call.value(weight_),
          .beta = call.value(bias_),
          .channels = config_.channels,
          .epsilon = static_cast<float>(config_.epsilon)};
}

void LayerNorm::forward(const Call& call, ConstView x) const {
  run(forward_of(call, x), call.stream);
}

void LayerNorm::forward_sum(
    const Call& call, View sum, ConstView x, ConstView branch, const ops::Dropout& dropout) const {
  ops::LayerNormForward forward = forward_of(call, x);
  forward.branch = branch;
  forward.sum = sum;
  forward.rows_per_sample = call.context;
  forward.dropout = dropout;
  run(forward, call.stream);
}

void LayerNorm::backward(
    const Call& call, View dx, ConstView dy, ConstView x, bool accumulate) const {
  run(ops::LayerNormBackward{.kind = config_.kind,
                             .dx = dx,
                             .dgamma = call.gradient(weight_),
                             .dbeta = call.gradient(bias_),
                             .dbias = call.gradient(fused_bias_),
                             .dy = dy,
                             .x = x,
                             .gamma = call.value(weight_),
                             .mean = call.view(mean_),
                             .rstd = call.view(rstd_),
                             .channels = config_.channels,
                             .accumulate = accumulate},
      call.stream);
  call.ready(bias_);
  call.ready(weight_);
}

bool LayerNorm::accept_bias_sums(ParameterIndex bias) {
  if (fused_bias_ != absent)
    return false;
  fused_bias_ = bias;
  return true;
}

}  // namespace trireme::nn
