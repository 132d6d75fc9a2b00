// SPDX-License-Identifier: Apache-2.0
#include "nn/attention.hpp"

namespace trireme::nn {
namespace {

/// Elements of all keys, or of all values, in the cache.
std::int64_t keys_width(const AttentionConfig& config) {
  return (config.qkv_width() - config.width()) / 2;
}

std::unique_ptr<HeadNorm> head_norm(Registry& registry,
                                    const std::string& scope,
                                    const AttentionConfig& config,
                                    const Rotary* rotary) {
  if (config.qk_norm == QkNorm::none)
    return nullptr;
  return std::make_unique<HeadNorm>(registry, scope + "attn",
                                    HeadNormConfig{.heads = config.normed_heads(),
                                                   .query_heads = config.heads,
                                                   .channels = config.head_channels,
                                                   .gain = config.qk_norm == QkNorm::with_gain,
                                                   .epsilon = config.epsilon},
                                    rotary);
}

}  // namespace

Attention::Attention(Registry& registry,
                     const std::string& scope,
                     const AttentionConfig& config,
                     const Rotary* rotary)
    : config_(config),
      rotary_(rotary),
      qkv_(registry,
           scope + "attn.qkv",
           {.role = "qkv",
            .in = config.channels,
            .out = config.qkv_width(),
            .bias = config.qkv_bias,
            .deviation = config.deviation,
            .parts = {config.width(), keys_width(config), keys_width(config)}}),
      head_norm_(head_norm(registry, scope, config, rotary)),
      output_(registry,
              scope + "attn.proj",
              {.role = "attention_projection",
               .in = config.width(),
               .out = config.channels,
               .bias = config.bias,
               .deviation = config.output_deviation}),
      dropout_site_(registry.add_dropout_site()) {}

void Attention::plan(Planner& planner) {
  packed_ = planner.retain(Retention::block, "qkv", config_.qkv_width());
  if (head_norm_ != nullptr)
    head_norm_->plan(planner);
  result_ = planner.retain(Retention::block, "attention", config_.width());
  if (const CacheSize& cache = planner.sizes().cache; cache.given()) {
    cache_shape_ = config_.shape({cache.sequences, cache.positions, planner.sizes().dtype});
    cache_ = planner.retain_always("attention.cache", ops::cache_elements(cache_shape_));
  } else {
    lse_ = planner.retain(Retention::block, "attention.lse", config_.heads, DType::f32);
  }
  planner.need(&ActivationPlan::Scratch::narrow, config_.width());
  planner.need(&ActivationPlan::Scratch::wide, config_.qkv_width());
}

void Attention::prepare(Kernels& kernels, const BatchSize& size) {
  qkv_.prepare(kernels, size);
  if (!size.cache.given())
    attention_.push_back(&kernels.attention(config_.shape(size)));
  output_.prepare(kernels, size);
}

void Attention::prepare_heads(const Call& call, View packed, ops::Direction direction) const {
  const ops::RotaryShape shape{.time = call.context,
                               .heads = config_.normed_heads(),
                               .head_channels = config_.head_channels,
                               .stride = config_.qkv_width()};
  if (head_norm_ == nullptr && rotary_ != nullptr)
    rotary_->rotate(call, packed, shape, direction);
  else if (head_norm_ != nullptr && direction == ops::Direction::forward)
    head_norm_->forward(call, packed, shape);
  else if (head_norm_ != nullptr)
    head_norm_->backward(call, packed, shape);
}

void Attention::forward_inside(const Call& call, ConstView x) const {
  const View packed = call.view(packed_);
  qkv_.forward(call, packed, x);
  prepare_heads(call, packed, ops::Direction::forward);
  if (call.cached != nullptr)
    return run(ops::CachedAttention{.out = call.view(result_),
                                    .cache = call.whole(cache_),
                                    .qkv = packed,
                                    .sequences = call.cached->sequences,
                                    .positions = call.cached->positions,
                                    .starts = call.document_starts,
                                    .shape = cache_shape_},
               call.stream);
  attention_[call.size]->forward({.out = call.view(result_),
                                  .lse = call.view(lse_),
                                  .qkv = packed,
                                  .starts = call.document_starts,
                                  .dropout = call.dropout_at(dropout_site_)},
                                 call.stream);
}

void Attention::forward_output(const Call& call) const {
  output_.forward(call, call.narrow_of(config_.channels), call.view(result_));
}

void Attention::backward(const Call& call, ConstView dy, ConstView x) const {
  const View packed = call.view(packed_), result = call.view(result_);
  const View d_packed = call.wide_of(config_.qkv_width());
  const View d_result = call.narrow_of(config_.width());
  output_.backward_parameters(call, dy, result);
  output_.backward_input(call, d_result, dy);
  attention_[call.size]->backward({.dqkv = d_packed,
                                   .dout = d_result,
                                   .qkv = packed,
                                   .out = result,
                                   .lse = call.view(lse_),
                                   .starts = call.document_starts,
                                   .dropout = call.dropout_at(dropout_site_)},
                                  call.stream);
  prepare_heads(call, d_packed, ops::Direction::inverse);
  qkv_.backward_parameters(call, d_packed, x);
  qkv_.backward_input(call, call.narrow_of(config_.channels), d_packed);
}

}  // namespace trireme::nn
