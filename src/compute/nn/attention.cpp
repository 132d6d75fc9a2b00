// SPDX-License-Identifier: Apache-2.0
#include "nn/attention.hpp"

#include "ops/head_norm.hpp"

namespace trireme::nn {
namespace {

/// Elements of all keys, or of all values, in the cache.
std::int64_t keys_width(const AttentionConfig& config) {
  return (config.qkv_width() - config.width()) / 2;
}

/// Registers the gain of qk_norm, one per channel of a head, if there is one.
ParameterIndex gain(Registry& registry, const std::string& name, const AttentionConfig& config) {
  if (config.qk_norm != QkNorm::with_gain)
    return absent;
  return registry.add({.name = name, .shape = {config.head_channels}}, {.constant = 1});
}

}  // namespace

Attention::Attention(Registry& registry,
                     const std::string& scope,
                     const AttentionConfig& config,
                     const Slot* angles)
    : config_(config),
      angles_(angles),
      qkv_(registry,
           scope + "attn.qkv",
           {.role = "qkv",
            .in = config.channels,
            .out = config.qkv_width(),
            .bias = config.qkv_bias,
            .deviation = config.deviation,
            .parts = {config.width(), keys_width(config), keys_width(config)}}),
      query_gain_(gain(registry, scope + "attn.q_norm.weight", config)),
      key_gain_(gain(registry, scope + "attn.k_norm.weight", config)),
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
  if (config_.qk_norm != QkNorm::none && !planner.sizes().cache.given()) {
    const std::int64_t heads = config_.normed_heads();
    raw_ = planner.retain(Retention::block, "qk_norm.raw", heads * config_.head_channels);
    rstd_ = planner.retain(Retention::block, "qk_norm.rstd", heads, DType::f32);
  }
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
  const ConstView table = angles_ != nullptr ? call.whole(*angles_) : View();
  if (config_.qk_norm == QkNorm::none) {
    if (angles_ != nullptr)
      run(ops::Rotate{.packed = packed,
                      .table = table,
                      .positions = call.positions(),
                      .shape = shape,
                      .direction = direction},
          call.stream);
    return;
  }
  const ops::HeadNorm norm{.query_gain = call.value(query_gain_),
                           .key_gain = call.value(key_gain_),
                           .table = table,
                           .positions = call.positions(),
                           .shape = shape,
                           .query_heads = config_.heads,
                           .epsilon = static_cast<float>(config_.epsilon)};
  if (direction == ops::Direction::forward)
    return run(ops::HeadNormForward{.packed = packed,
                                    .raw = call.training ? call.view(raw_) : View(),
                                    .rstd = call.training ? call.view(rstd_) : View(),
                                    .norm = norm},
               call.stream);
  run(ops::HeadNormBackward{.d_packed = packed,
                            .d_query_gain = call.gradient(query_gain_),
                            .d_key_gain = call.gradient(key_gain_),
                            .raw = call.view(raw_),
                            .rstd = call.view(rstd_),
                            .norm = norm},
      call.stream);
  call.ready(key_gain_);
  call.ready(query_gain_);
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
