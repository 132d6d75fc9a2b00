// SPDX-License-Identifier: Apache-2.0
#include "nn/mlp.hpp"

#include "ops/elementwise.hpp"

namespace trireme::nn {

Mlp::Mlp(Registry& registry, const std::string& scope, const MlpConfig& config)
    : config_(config),
      input_(registry,
             scope + "mlp.fc",
             {.role = "fc",
              .in = config.channels,
              .out = config.hidden,
              .bias = config.bias,
              .deviation = config.deviation,
              .gelu_after = !config.recomputes}),
      output_(registry,
              scope + "mlp.proj",
              {.role = "mlp_projection",
               .in = config.hidden,
               .out = config.channels,
               .bias = config.bias,
               .deviation = config.output_deviation,
               .gelu_before = true}) {}

void Mlp::plan(Planner& planner) {
  before_ = planner.keep(Keep::block, "fc", config_.hidden);
  activated_ = planner.keep(Keep::cheap, "gelu", config_.hidden);
  planner.need(&ActivationPlan::Scratch::wide, config_.hidden);
}

void Mlp::prepare(Kernels& kernels, const BatchSize& size) {
  input_.prepare(kernels, size);
  output_.prepare(kernels, size);
}

void Mlp::list(ProductList& list) const {
  input_.list(list);
  output_.list(list);
}

double Mlp::flops_per_token(std::int64_t /*context*/) const {
  return input_.flops_per_token() + output_.flops_per_token();
}

void Mlp::forward_inside(const Call& call, ConstView x) const {
  const View before = call.view(before_);
  if (config_.recomputes) {
    input_.forward(call, before, x);
    ops::gelu_forward(activated(call), before, call.stream);
  } else {
    input_.forward_gelu(call, activated(call), before, x);
  }
}

void Mlp::forward_output(const Call& call) const {
  output_.forward(call, call.narrow_of(config_.channels), activated(call));
}

void Mlp::backward(const Call& call, ConstView dy, ConstView x) const {
  const View before = call.view(before_), d_before = hidden_of(call);
  if (config_.recomputes)
    ops::gelu_forward(activated(call), before, call.stream);
  output_.backward_parameters(call, dy, activated(call));
  output_.backward_input_gelu(call, d_before, before, dy);
  input_.backward_parameters(call, d_before, x);
  input_.backward_input(call, call.narrow_of(config_.channels), d_before);
}

}  // namespace trireme::nn
