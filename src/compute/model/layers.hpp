// SPDX-License-Identifier: Apache-2.0
// The layers of a model, put together: only this differs from one family to another, GPT-2 from
// Llama, Qwen3, nanochat and any mixture of their parts.
//
//   embedding, a norm where there is one, then per block  x + attention(norm(x))  and
//   x + mlp(norm(x)), a norm, the head
//
// Constructing them declares the parameters. Everything else that is known without a device is a
// sum over the layers: the plan of the activations, the products of a micro-step, FLOP. What runs
// them is Gpt (gpt.hpp), which does not depend on any layer's kind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.hpp"

#include "model/config.hpp"
#include "nn/activations.hpp"
#include "nn/attention.hpp"
#include "nn/branch.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/kernels.hpp"
#include "nn/norm.hpp"
#include "nn/product_list.hpp"
#include "nn/registry.hpp"
#include "nn/rotary.hpp"

namespace trireme::model {

/// x + dropout(branch(norm(x))).
struct Residual {
  std::unique_ptr<nn::Norm> norm;
  std::unique_ptr<nn::Branch> branch;
  std::uint32_t dropout_site = 0;
  nn::Slot x;  ///< the stream that enters, or the embedding before its norm
};

/// What before_use asks for together, and recompute: block computes again together.
struct Block {
  std::size_t begin = 0, end = 0;     ///< of the residuals
  ParameterIndex first = nn::absent;  ///< its parameters are [first, first + count)
  std::size_t count = 0;
};

struct Layers {
  /// Requires: sizes that are complete and fit together.
  explicit Layers(const GptShape& shape);

  /// Where everything lies, for batches of up to `sequences`; with a cache, for decoding, of up to
  /// `sequences` single positions.
  nn::ActivationPlan plan(DType dtype,
                          std::int64_t sequences,
                          device::Kind kind,
                          const nn::CacheSize& cache = {});
  /// Once `memory`, the buffer of the plan, is there: what no call writes.
  void fill(const device::Buffer& memory, device::Device& device) const;
  /// Before the first call with such a batch; sizes count from 0 in the order of these calls.
  void prepare(nn::Kernels& kernels, const nn::BatchSize& size);

  /// Of Call; empty where attention does not ask for it. Once per call of whole sequences.
  [[nodiscard]] ConstView document_starts(const nn::Call& call, ConstView tokens) const;
  /// From tokens to the output of the final norm, with before_use in forward order
  /// (layers_forward).
  void forward(const nn::Call& call, ConstView tokens) const;
  /// The output of residual i's branch into the stream, and the norm after it.
  void add_and_normalize(const nn::Call& call, std::size_t i) const;
  /// before_use of the parameters of block l, of which backward reads next.
  void announce_backward(const nn::Call& call, std::size_t l) const;
  /// The same of the embedding's norm.
  void announce_embedding_norm(const nn::Call& call) const;
  /// Throws ContractError for views that are not those of the parameter table, of `dtype`.
  void expect_values(const std::vector<ConstView>& values, DType dtype) const;

  /// The norm that reads the stream at place i: of residual i, or the final one after the last.
  [[nodiscard]] const nn::Norm& norm(std::size_t i) const {
    return i < residuals.size() ? *residuals[i].norm : *final_norm;
  }
  /// The stream at that place.
  [[nodiscard]] View stream(const nn::Call& call, std::size_t i) const {
    return i == 0 && embedding_norm ? embedding_norm->output(call)
                                    : call.view(i < residuals.size() ? residuals[i].x : x_last);
  }
  /// What the embedding makes: the stream, or what a norm makes the stream of.
  [[nodiscard]] View embedded(const nn::Call& call) const { return call.view(residuals.front().x); }

  const GptShape shape;
  nn::Registry registry;
  std::unique_ptr<nn::Rotary> rotary;  ///< null where positions are learned
  std::unique_ptr<nn::Embedding> embedding;
  std::unique_ptr<nn::Norm> embedding_norm;             ///< null: none
  ParameterIndex first_of_embedding_norm = nn::absent;  ///< to that of the first block
  std::vector<Residual> residuals;
  std::vector<Block> blocks;
  std::unique_ptr<nn::Norm> final_norm;
  ParameterIndex first_after_blocks = nn::absent;  ///< the final norm's, then an untied head's
  std::unique_ptr<nn::Head> head;
  nn::Slot x_last;  ///< the stream that leaves the last block
  nn::Slot window;  ///< [T] int32, the padded window of next_logits
  nn::Slot starts;  ///< [T] int32 for each sequence, where documents begin

 private:
  /// Registered under `scope` + `name`, as "h.0." and "ln_1".
  std::unique_ptr<nn::Norm> make_norm(const std::string& scope, const char* name);
  void add(std::unique_ptr<nn::Norm> norm, std::unique_ptr<nn::Branch> branch);
  void ask_neighbours();
  void announce(const nn::Call& call, ParameterIndex first, std::size_t count) const;
  /// The parameters of the block that begins with residual i, or of what comes after the blocks.
  void announce_at(const nn::Call& call, std::size_t i) const;

  std::vector<ParameterIndex> indices_;  // 0, 1, …: spans of it go to before_use
};

/// The parameter table in registration order: "wte.weight", ["wpe.weight"], ["ln_e.weight"],
/// "h.0.ln_1.weight", … "ln_f.weight", ["head.weight"]; with gains in qk_norm,
/// "attn.q_norm.weight" and "attn.k_norm.weight" between "attn.qkv" and "attn.proj". The rows of
/// "attn.qkv.weight" are those of all queries, then of all keys, then of all values; those of
/// "mlp.fc.weight" with SwiGLU are of the gates, then of what they let through.
std::vector<layout::Parameter> parameter_table(const GptShape& shape);

/// 6·parameters + 6·layers·heads·head_channels·context: multiply-adds of forward and backward,
/// times two, causal half of attention only, and in layers with a window what it shows. Source:
/// Kaplan et al. 2020, section 2.1, attention term as llm.c.
double flops_per_token(const GptShape& shape);

/// What a model on such a device keeps and leases, for batches of up to `micro_sequences`.
nn::ActivationPlan activation_plan(const GptShape& shape,
                                   DType dtype,
                                   std::int64_t micro_sequences,
                                   device::Kind kind);

/// Of a micro-step of `micro_sequences` in `dtype` on such a device; the head by its chunks.
std::vector<nn::ListedProduct> linear_products(const GptShape& shape,
                                               DType dtype,
                                               std::int64_t micro_sequences,
                                               device::Kind kind);

/// What the head computes beside the cross-entropy.
ops::LossTerms loss_terms(const GptShape& shape);

/// The attention of block `layer`; blocks differ in their windows alone.
nn::AttentionConfig attention_config(const GptShape& shape, std::int64_t layer);
ops::AttentionShape attention_shape(const GptShape& shape,
                                    std::int64_t layer,
                                    DType dtype,
                                    std::int64_t sequences);
/// For people: that a GPU trains attention slowly, and why; empty where it does not.
std::string slow_attention_note(const GptShape& shape, DType dtype);

}  // namespace trireme::model
