// SPDX-License-Identifier: Apache-2.0
// Builds a model from its layers. This is the only code that differs between families (GPT-2,
// Llama, Qwen3, nanochat) and mixtures of their parts.
//
//   embedding, optionally a norm, then per block  x + attention(norm(x))  and
//   x + mlp(norm(x)), a norm, the head
//
// The constructor declares the parameters. Everything else that needs no device is a sum over the
// layers: the plan of activations, the products of a micro-step, FLOP. Gpt (gpt.hpp) runs the
// layers and does not depend on their kinds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/device.hpp"

#include "model/config.hpp"
#include "nn/activations.hpp"
#include "nn/attention.hpp"
#include "nn/branch.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/kernels.hpp"
#include "nn/layer_norm.hpp"
#include "nn/linear_products.hpp"
#include "nn/registry.hpp"

namespace trireme::model {

/// x + dropout(branch(norm(x))).
struct Residual {
  std::unique_ptr<nn::LayerNorm> norm;
  std::unique_ptr<nn::Branch> branch;
  std::uint32_t dropout_site = 0;
  nn::Slot x;  ///< the incoming stream, or the embedding before its norm
};

struct Layers {
  /// Requires: complete and consistent sizes.
  explicit Layers(const GptShape& shape);
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;

  /// Memory for batches of up to `sequences`; with a cache, for decoding as many single positions.
  nn::ActivationPlan plan(DType dtype,
                          std::int64_t sequences,
                          device::Kind kind,
                          const nn::CacheSize& cache = {});
  /// Writes constant tables into `memory`, the buffer of the plan.
  void fill(const device::Buffer& memory, device::Device& device) const;
  /// Call::size of a batch size, which is prepared at its first use. Sizes differ in `sequences`.
  std::size_t size_of(nn::Kernels& kernels, const nn::BatchSize& size);

  /// Call::document_starts for a call of whole sequences; empty without document mask.
  [[nodiscard]] ConstView document_starts(const nn::Call& call, ConstView tokens) const;
  /// From tokens to the output of the final norm (layers_forward.cpp), with before_use in order.
  void forward(const nn::Call& call, ConstView tokens) const;
  /// Adds the output of residual i's branch to the stream, and computes the norm after it.
  void add_and_normalize(const nn::Call& call, std::size_t i) const;
  /// Calls before_use for a group of parameters: 0 is the embeddings and their norm, l + 1 block l,
  /// the last one what follows the blocks.
  void announce(const nn::Call& call, std::size_t group) const {
    announce(call, group_begin_[group], group_begin_[group + 1]);
  }
  void announce_embedding_norm(const nn::Call& call) const;
  /// Throws ContractError if the views, of `what`, do not match the parameter table and `dtype`.
  void expect_views(const auto& views, DType dtype, const char* what) const {
    const auto& table = registry.table();
    TRIREME_EXPECT(views.size() == table.size(), "{} {} bound to a model with {} parameters",
                   views.size(), what, table.size());
    for (std::size_t i = 0; i < table.size(); ++i)
      TRIREME_EXPECT(views[i].elements == table[i].elements() && views[i].dtype == dtype,
                     "{} of {}: {} elements of {} bound, which has {} of {}", what, table[i].name,
                     views[i].elements, name(views[i].dtype), table[i].elements(), name(dtype));
  }

  /// The norm that reads the stream before residual i, or the final norm after the last.
  [[nodiscard]] const nn::LayerNorm& norm(std::size_t i) const {
    return i < residuals.size() ? *residuals[i].norm : *final_norm;
  }
  /// The stream before residual i, or after the last.
  [[nodiscard]] View stream(const nn::Call& call, std::size_t i) const {
    return i == 0 && embedding_norm ? embedding_norm->output(call)
                                    : call.view(i < residuals.size() ? residuals[i].x : x_last);
  }
  /// Output of the embedding, before embedding_norm if there is one.
  [[nodiscard]] View embedded(const nn::Call& call) const { return call.view(residuals.front().x); }

  static constexpr std::size_t per_block = 2;  ///< residuals: attention and MLP
  const GptShape shape;
  nn::Registry registry;
  std::unique_ptr<nn::Embedding> embedding;
  std::unique_ptr<nn::LayerNorm> embedding_norm;  ///< null: none
  std::vector<Residual> residuals;
  std::unique_ptr<nn::LayerNorm> final_norm;
  std::unique_ptr<nn::Head> head;
  nn::Slot angles;  ///< table of rotary positions, which all blocks share; persists between calls
  nn::Slot x_last;  ///< the output of the last block
  nn::Slot window;  ///< [T] int32, the padded window of next_logits
  nn::Slot starts;  ///< [T] int32 per sequence, where documents begin

 private:
  /// Registered under `scope` + `name`, as "h.0." and "ln_1".
  std::unique_ptr<nn::LayerNorm> make_norm(const std::string& scope, const char* name);
  void add(std::unique_ptr<nn::LayerNorm> norm, std::unique_ptr<nn::Branch> branch);
  void request_fusions();
  void begin_group();
  void announce(const nn::Call& call, std::size_t begin, std::size_t end) const;

  std::vector<std::size_t> group_begin_{0};    // indices of parameters; then their number
  std::size_t begin_of_embedding_norm_ = 0;    // to group 1
  std::vector<ParameterIndex> indices_;        // 0, 1, …: spans of it go to before_use
  std::map<std::int64_t, std::size_t> sizes_;  // by sequences
};

/// The parameter table in registration order: "wte.weight", ["wpe.weight"], ["ln_e.weight"],
/// "h.0.ln_1.weight", … "ln_f.weight", ["head.weight"]; with gains in qk_norm,
/// "attn.q_norm.weight" and "attn.k_norm.weight" between "attn.qkv" and "attn.proj". The rows of
/// "attn.qkv.weight" are all queries, then all keys, then all values; those of "mlp.fc.weight" with
/// SwiGLU are the gates, then the gated channels.
std::vector<layout::Parameter> parameter_table(const GptShape& shape);

/// 6·parameters + 6·layers·heads·head_channels·context: FLOP of forward and backward, with only the
/// causal half of attention, and in layers with a window only the pairs inside it. Source: Kaplan
/// et al. 2020, section 2.1, attention term as llm.c.
double flops_per_token(const GptShape& shape);

/// Activations and scratch on a device of `kind`, for batches of up to `micro_sequences`.
nn::ActivationPlan activation_plan(const GptShape& shape,
                                   DType dtype,
                                   std::int64_t micro_sequences,
                                   device::Kind kind);

/// Matrix products of a micro-step of `micro_sequences` in `dtype`; the head's per chunk.
std::vector<nn::ListedProduct> linear_products(const GptShape& shape,
                                               DType dtype,
                                               std::int64_t micro_sequences,
                                               device::Kind kind);

/// Terms of the loss in addition to the cross-entropy.
ops::LossTerms loss_terms(const GptShape& shape);

/// The attention of block `layer`; blocks only differ in their windows.
nn::AttentionConfig attention_config(const GptShape& shape, std::int64_t layer);
ops::AttentionShape attention_shape(const GptShape& shape,
                                    std::int64_t layer,
                                    DType dtype,
                                    std::int64_t sequences);
/// A message if a GPU trains this attention slowly, with the reason; else empty.
std::string slow_attention_note(const GptShape& shape, DType dtype);

}  // namespace trireme::model
