// SPDX-License-Identifier: Apache-2.0
#include "nn/layer_norm.hpp"

#include <utility>

#include "ops/layer_norm.hpp"

namespace trireme::nn {

LayerNorm::LayerNorm(Registry& registry,
                     const std::string& scope,
                     std::string name,
                     const LayerNormConfig& config)
    : name_(std::move(name)), config_(config) {
  if (config.gain)
    weight_ = registry.add(scope + name_ + ".weight", {config.channels}, {.constant = 1});
  if (config.bias && config.centered)
    bias_ = registry.add(scope + name_ + ".bias", {config.channels}, {});
}

void LayerNorm::plan(Planner& planner, Keep how) {
  if (config_.centered)
    mean_ = planner.keep(how, name_ + ".mean", 1, DType::f32);
  rstd_ = planner.keep(how, name_ + ".rstd", 1, DType::f32);
  output_ = planner.keep(how, name_, config_.channels);
}

void LayerNorm::forward(const Call& call, ConstView x) const {
  ops::layer_norm_forward(call.view(output_), call.view(mean_), call.view(rstd_), x,
                          call.value(weight_), call.value(bias_), epsilon(), call.stream);
}

void LayerNorm::forward_sum(
    const Call& call, View sum, ConstView x, ConstView branch, const ops::Dropout& dropout) const {
  ops::residual_layer_norm_forward(sum, call.view(output_), call.view(mean_), call.view(rstd_), x,
                                   branch, call.value(weight_), call.value(bias_), call.context,
                                   dropout, epsilon(), call.stream);
}

void LayerNorm::backward(
    const Call& call, View dx, ConstView dy, ConstView x, bool accumulate) const {
  ops::layer_norm_backward(dx, call.gradient(weight_), call.gradient(bias_),
                           call.gradient(asked_bias_), dy, x, call.value(weight_), call.view(mean_),
                           call.view(rstd_), accumulate, call.stream);
  call.ready(bias_);
  call.ready(weight_);
}

double LayerNorm::flops_per_token() const {
  return 6.0 * static_cast<double>(config_.channels) *
         ((weight_ != absent ? 1 : 0) + (bias_ != absent ? 1 : 0));
}

bool LayerNorm::take_bias_sums(ParameterIndex bias) {
  if (asked_bias_ != absent)
    return false;
  asked_bias_ = bias;
  return true;
}

}  // namespace trireme::nn
