// SPDX-License-Identifier: Apache-2.0
// Causal multi-head self-attention between two linear layers: one product for queries, keys and
// values of all heads, packed for ops/attention.hpp, and one for the output. Query heads may share
// keys and values. Queries and keys may be normalized per head and rotated in place, in one pass
// (ops/head_norm.hpp, ops/rotary.hpp); backward and the decoding cache (ops/cached_attention.hpp)
// use the transformed values, and the norm retains the original ones in training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/branch.hpp"
#include "nn/config.hpp"
#include "ops/attention.hpp"
#include "ops/cached_attention.hpp"
#include "ops/rotary.hpp"

namespace trireme::nn {

struct AttentionConfig {
  std::int64_t channels = 0;  ///< of the residual stream
  std::int64_t heads = 0, head_channels = 0;
  bool bias = true;  ///< of the output layer
  bool qkv_bias = true;
  bool drops = false;              ///< dropout acts on the probabilities in training
  double deviation = 0;            ///< of the first layer's initial values
  double output_deviation = 0;     ///< of the output layer's initial values
  std::int64_t grouped_heads = 0;  ///< key and value heads; 0: as many as heads
  QkNorm qk_norm = QkNorm::none;
  double epsilon = 0;       ///< of qk_norm
  std::int64_t window = 0;  ///< positions that a token sees; 0: all up to its own
  bool documents = false;   ///< only those of its document (Call::document_starts)

  /// Width of the input of the output layer.
  [[nodiscard]] std::int64_t width() const { return heads * head_channels; }
  [[nodiscard]] std::int64_t qkv_width() const { return shape({}).packed_width(); }
  /// Those of queries and of keys.
  [[nodiscard]] std::int64_t normed_heads() const { return heads + shape({}).key_value_heads(); }
  [[nodiscard]] ops::AttentionShape shape(const BatchSize& size) const {
    return {.batch = size.sequences,
            .time = size.context,
            .heads = heads,
            .head_channels = head_channels,
            .dtype = size.dtype,
            .drops = drops,
            .grouped_heads = grouped_heads,
            .window = window,
            .documents = documents};
  }
};

class Attention final : public Branch {
 public:
  /// With gains, registers attn.q_norm.weight and attn.k_norm.weight. `angles`, the table of
  /// rotary_table() (ops/rotary.hpp), is retained always and outlives the layer; null: no rotation.
  Attention(Registry& registry,
            const std::string& scope,
            const AttentionConfig& config,
            const Slot* angles = nullptr);

  void plan(Planner& planner) override;
  void prepare(Kernels& kernels, const BatchSize& size) override;
  [[nodiscard]] std::vector<ListedProduct> products(const BatchSize& size) const override {
    return {qkv_.product(size), output_.product(size)};
  }
  [[nodiscard]] Linear& output_layer() override { return output_; }

  void forward_inside(const Call& call, ConstView x) const override;
  void forward_output(const Call& call) const override;
  void backward(const Call& call, ConstView dy, ConstView x) const override;

 private:
  /// Norm and rotation of queries and keys in packed = [rows, qkv_width], and their gradient.
  void prepare_heads(const Call& call, View packed, ops::Direction direction) const;

  const AttentionConfig config_;
  const Slot* const angles_;
  Linear qkv_;
  ParameterIndex query_gain_, key_gain_;
  Linear output_;
  std::uint32_t dropout_site_;
  std::vector<const ops::Attention*> attention_;  // by batch size; empty when decoding
  ops::AttentionShape cache_shape_;
  Slot packed_, raw_, rstd_, result_, lse_, cache_;
};

}  // namespace trireme::nn
