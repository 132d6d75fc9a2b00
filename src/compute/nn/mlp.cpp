// SPDX-License-Identifier: Apache-2.0
#include "nn/mlp.hpp"

#include "ops/activations.hpp"

namespace trireme::nn {

Mlp::Mlp(Registry& registry, const std::string& scope, const MlpConfig& config)
    : config_(config),
      input_(registry,
             scope + "mlp.fc",
             {.role = "fc",
              .in = config.channels,
              .out = config.before_width(),
              .bias = config.bias,
              .deviation = config.deviation,
              .parts = config.activation == Activation::swiglu
                           ? std::vector{config.hidden, config.hidden}
                           : std::vector<std::int64_t>{}}),
      output_(registry,
              scope + "mlp.proj",
              {.role = "mlp_projection",
               .in = config.hidden,
               .out = config.channels,
               .bias = config.bias,
               .deviation = config.output_deviation,
               .gelu_before = config.activation == Activation::gelu}) {}

void Mlp::plan(Planner& planner) {
  before_ = planner.retain(Retention::block, "fc", config_.before_width());
  activated_ = planner.retain(Retention::cheap, "gelu", config_.hidden);
  input_.set_gelu_after(fuses());
  planner.need(&ActivationPlan::Scratch::wide, wide_width());
}

void Mlp::prepare(Kernels& kernels, const BatchSize& size) {
  input_.prepare(kernels, size);
  output_.prepare(kernels, size);
}

std::int64_t Mlp::wide_width() const {
  return config_.activation == Activation::swiglu ? config_.before_width() + config_.hidden
                                                  : config_.hidden;
}

View Mlp::hidden_of(const Call& call) const {
  const std::int64_t elements = call.rows() * config_.hidden;
  return call.wide_of(wide_width()).slice(call.rows() * wide_width() - elements, elements);
}

void Mlp::activate(const Call& call, ConstView before) const {
  run(ops::ActivationForward{.y = activated(call),
                             .x = before,
                             .function = config_.activation,
                             .columns = config_.hidden},
      call.stream);
}

void Mlp::forward_inside(const Call& call, ConstView x) const {
  const View before = call.view(before_);
  if (fuses()) {
    input_.forward(call, activated(call), x, before);
  } else {
    input_.forward(call, before, x);
    activate(call, before);
  }
}

void Mlp::forward_output(const Call& call) const {
  output_.forward(call, call.narrow_of(config_.channels), activated(call));
}

void Mlp::backward(const Call& call, ConstView dy, ConstView x) const {
  const View before = call.view(before_), d_before = call.wide_of(config_.before_width());
  if (recomputes())
    activate(call, before);
  output_.backward_parameters(call, dy, activated(call));
  if (config_.activation == Activation::gelu) {
    output_.backward_input(call, d_before, dy, before);
  } else {
    output_.backward_input(call, hidden_of(call), dy);
    run(ops::ActivationBackward{.dx = d_before,
                                .dy = hidden_of(call),
                                .x = before,
                                .function = config_.activation,
                                .columns = config_.hidden},
        call.stream);
  }
  input_.backward_parameters(call, d_before, x);
  input_.backward_input(call, call.narrow_of(config_.channels), d_before);
}

}  // namespace trireme::nn
