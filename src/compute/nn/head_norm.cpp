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
  query_gain_ = registry.add(name + ".q_norm.weight", {config.channels}, {.constant = 1});
  key_gain_ = registry.add(name + ".k_norm.weight", {config.channels}, {.constant = 1});
}

void HeadNorm::plan(Planner& planner) {
  if (planner.sizes().cache.given())
    return;
  raw_ = planner.keep(Keep::block, "qk_norm.raw", config_.heads * config_.channels);
  rstd_ = planner.keep(Keep::block, "qk_norm.rstd", config_.heads, DType::f32);
}

double HeadNorm::flops_per_token() const {
  return config_.gain ? 6.0 * static_cast<double>(2 * config_.channels) : 0;
}

ops::HeadNormShape HeadNorm::shape(const Call& call, const ops::AttentionShape& shape) const {
  return {.rows = rotary_shape(call, shape),
          .query_heads = config_.query_heads,
          .epsilon = static_cast<float>(config_.epsilon)};
}

ConstView HeadNorm::table(const Call& call) const {
  return rotary_ != nullptr ? rotary_->table(call) : ConstView(nullptr, 0, DType::f32);
}

void HeadNorm::forward(const Call& call, View packed, const ops::AttentionShape& shape) const {
  const bool keeps = call.training;
  ops::head_norm_forward(packed, keeps ? call.view(raw_) : View(nullptr, 0, packed.dtype),
                         keeps ? call.view(rstd_) : View(nullptr, 0, DType::f32),
                         call.value(query_gain_), call.value(key_gain_), table(call),
                         call.positions(), this->shape(call, shape), call.stream);
}

void HeadNorm::backward(const Call& call, View d_packed, const ops::AttentionShape& shape) const {
  ops::head_norm_backward(d_packed, call.gradient(query_gain_), call.gradient(key_gain_),
                          call.view(raw_), call.view(rstd_), call.value(query_gain_),
                          call.value(key_gain_), table(call), this->shape(call, shape),
                          call.stream);
  call.ready(key_gain_);
  call.ready(query_gain_);
}

}  // namespace trireme::nn
