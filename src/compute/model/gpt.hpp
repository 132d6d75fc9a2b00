// SPDX-License-Identifier: Apache-2.0
// A decoder-only transformer (GPT-2, Llama, Qwen3, nanochat): token embedding, optionally learned
// positions, `layers` pre-norm blocks of causal attention and MLP, a final norm, and a head that
// may share the token embedding. Sources: family.cpp; for initial values (normal 0.02, residual
// projections scaled by 1/sqrt(2·layers)) Radford et al. 2019, section 2.3.
//
// Dimensions here and in ops: B batch rows of a micro-step, T time = context, C channels, L layers,
// H heads, V vocabulary.
//
// 1. Parameters and gradients are bound views of memory that the caller owns (stores of reduce).
//    The model owns only activations.
// 2. Forward calls `before_use` once per group of parameters, in forward order, before the first op
//    that reads them: the embeddings; each block; the final norm with an untied head. A tied head
//    is not announced again. Backward calls it again for each block in reverse order and for the
//    embedding norm, but not for the last group of forward. Training calls `gradient_ready` once
//    per parameter on the last micro-step, in exactly reverse registration order, so the token
//    embedding is last.
// 3. Gradients are accumulated; their owner zeroes them at the start of a step.
// 4. Activations, matmuls and scratch are planned at construction. A step allocates nothing once
//    the scratch pool is warm.
// 5. The head works on one chunk of rows at a time (nn/head.hpp), so the logits of all rows never
//    exist at once. A tied embedding receives the head's part of its gradient first and the
//    embedding's part last.
// 6. The results of a row depend only on that row, not on B or its place in the batch. On a GPU
//    this holds up to the rounding of sums.
// 7. All work is enqueued on the given stream; with an inline CPU stream it is complete on return.
// 8. Training retains the activations of every block; in evaluation all blocks use those of block
//    0. Scratch is leased while it is needed: `narrow` and `wide` for a whole call, the logits for
//    the head, the rest for backward. Memory is planned for `micro_sequences`, the largest batch.
//    Products are created at the first use of a batch size.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "device/pool.hpp"
#include "layout/plan.hpp"

#include "model/config.hpp"
#include "model/layers.hpp"
#include "nn/call.hpp"
#include "nn/hooks.hpp"
#include "nn/kernels.hpp"
#include "ops/options.hpp"

namespace trireme::model {

using nn::Hooks;

/// One micro-batch. tokens and targets are [B, T] int32; target t is token t + 1.
struct Batch {
  ConstView tokens;
  ConstView targets;
  /// Global index of row 0, in memory of the device, so that every step has its own dropout masks;
  /// the rows are consecutive samples. Only training with dropout reads it.
  const std::uint64_t* first_sample = nullptr;
  /// Factor of every token's loss in the sum whose gradient is added; none: 1 / number of tokens.
  std::optional<float> loss_scale = {};
};

class Gpt {
 public:
  /// `micro_sequences` is the largest B of any call. `dtype` of parameters and activations is fp32
  /// or bf16; `seed` is for dropout. Scratch is leased from `scratch`, which must outlive the
  /// model; null: the model creates a pool. `options` apply to its products and attentions.
  Gpt(device::Device& device,
      const GptShape& shape,
      DType dtype,
      std::int64_t micro_sequences,
      std::uint64_t seed,
      device::ScratchPool* scratch = nullptr,
      const ops::Options& options = {});
  Gpt(const Gpt&) = delete;
  Gpt& operator=(const Gpt&) = delete;

  /// Views in registration order; gradients fp32, may be empty for evaluation and sampling.
  void bind(std::vector<ConstView> parameters, std::vector<View> gradients);

  /// Adds the gradient of the mean over B·T of the loss, or of the sum scaled by
  /// batch.loss_scale, to the bound gradients; dropout is on.
  /// losses = [B, T] fp32, one per token, unscaled. `last_micro_step`: gradient_ready is called.
  void train(
      const Batch& batch, View losses, bool last_micro_step, Hooks& hooks, device::Stream& stream);

  /// Losses per token without dropout and without gradients. B may be smaller than micro_sequences.
  void evaluate(const Batch& batch, View losses, Hooks& hooks, device::Stream& stream);

  /// Logits [V] fp32 after the last of `tokens` ([n], 1 <= n <= context): for sampling. Runs one
  /// row of the whole context, padded with token 0. The result is exact, because causal attention
  /// does not read later tokens.
  void next_logits(ConstView tokens, View logits, Hooks& hooks, device::Stream& stream);

  [[nodiscard]] const GptShape& shape() const { return layers_.shape; }
  /// Bytes of activations retained between forward and backward, without scratch.
  [[nodiscard]] std::size_t activation_bytes() const { return plan_.bytes(); }

 private:
  /// The number of sequences. Throws ContractError if sizes or dtypes do not agree.
  std::int64_t checked_batch(const Batch& batch, const View& losses) const;
  nn::Call call_of(std::int64_t sequences, Hooks& hooks, device::Stream& stream);
  /// From tokens to the final norm's output, which `finish` reads while scratch is leased.
  template <class Finish>
  void forward(nn::Call& call, ConstView tokens, const Finish& finish) const;

  /// With recompute: block: recomputes the block with residual `first` from its input.
  void forward_again(const nn::Call& call, std::size_t first) const;
  /// Backward from the gradient of the final norm's output, in call.narrow, to the embeddings.
  void backward(const nn::Call& call, ConstView tokens) const;
  /// `dx` is the gradient of the stream, `d_branch` scratch for it after dropout.
  void backward_residual(const nn::Call& call, std::size_t i, View dx, View d_branch) const;

  device::Device& device_;
  std::optional<device::ScratchPool> own_scratch_;  // if the caller gave none
  device::ScratchPool& scratch_;
  const DType dtype_;
  const std::int64_t micro_sequences_;
  const RandomKey dropout_key_;
  Layers layers_;
  const nn::ActivationPlan plan_;
  device::Buffer buffer_;
  nn::Kernels kernels_;
  nn::Bound bound_;
};

}  // namespace trireme::model
