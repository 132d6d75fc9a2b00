// SPDX-License-Identifier: Apache-2.0
#include "nn/head_norm.hpp"

namespace trireme::nn {

HeadNorm::HeadNorm(Registry& registry,
                   const std::string& name,
                   const HeadNormConfig& config,
                   const Rotary* rotary)
    : config_(config), rotary_(rotary) {
  if (!config.gain)
    return;
  query_gain_ =
      registry.add({.name = name + ".q_norm.weight", .shape = {config.channels}}, {.constant = 1});
  key_gain_ =
      registry.add({.name = name + ".k_norm.weight", .shape = {config.channels}}, {.constant = 1});
}

void HeadNorm::plan(Planner& planner) {
  if (planner.sizes().cache.given())
    return;
  raw_ = planner.retain(Retention::block, "qk_norm.raw", config_.heads * config_.channels);
  rstd_ = planner.retain(Retention::block, "qk_norm.rstd", config_.heads, DType::f32);
}

ops::HeadNorm HeadNorm::norm(const Call& call, const ops::RotaryShape& shape) const {
  return {.query_gain = call.value(query_gain_),
          .key_gain = call.value(key_gain_),
          .table = rotary_ != nullptr ? rotary_->table(call) : ConstView(),
          .positions = call.positions(),
          .shape = shape,
          .query_heads = config_.query_heads,
          .epsilon = static_cast<float>(config_.epsilon)};
}

void HeadNorm::forward(const Call& call, View packed, const ops::RotaryShape& shape) const {
  const bool keeps = call.training;
  run(ops::HeadNormForward{.packed = packed,
                           .raw = keeps ? call.view(raw_) : View(),
                           .rstd = keeps ? call.view(rstd_) : View(),
                           .norm = norm(call, shape)},
      call.stream);
}

void HeadNorm::backward(const Call& call, View d_packed, const ops::RotaryShape& shape) const {
  run(ops::HeadNormBackward{.d_packed = d_packed,
                            .d_query_gain = call.gradient(query_gain_),
                            .d_key_gain = call.gradient(key_gain_),
                            .raw = call.view(raw_),
                            .rstd = call.view(rstd_),
                            .norm = norm(call, shape)},
      call.stream);
  call.ready(key_gain_);
  call.ready(query_gain_);
}

}  // namespace trireme::nn
