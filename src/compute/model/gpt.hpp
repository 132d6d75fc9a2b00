// SPDX-License-Identifier: Apache-2.0
// A GPT-2, or what has other parts in the place of its own (Llama, Qwen3, nanochat): token
// embedding, with positions where they are learned, `layers` pre-norm blocks of causal attention
// and an MLP, a final norm, and a head that shares the token embedding when tied. Sources: Radford
// et al. 2019, section 2.3 for initial values (normal 0.02, residual projections scaled by
// 1/sqrt(2·layers)), also of the other parts; family.cpp.
//
// The letters used here and in ops: B batch rows of a micro-step, T time = context, C channels, L
// layers, H heads, V vocabulary.
//
// 1. Parameters and gradients are views bound from outside (reduce's stores): the model owns
//    activations only.
// 2. Forward asks `before_use` once per group of parameters, in forward order, before the first op
//    that reads them: the embeddings; each block; the final norm with an untied head. A tied head
//    is not asked for again. Backward asks again, for each block in reverse order and for a norm of
//    the embeddings; what forward asked for last it reads without asking. Training reports
//    `gradient_ready` once per parameter on the last micro-step, in exactly reverse registration
//    order, which puts the token embedding last.
// 3. Gradients are added to; their owner zeroes them at the start of a step.
// 4. Everything is planned at construction: activations, matmuls, scratch. A step allocates
//    nothing, once the scratch pool is warm.
// 5. The logits of all rows never exist at once: the head works on a chunk of rows at a time, and
//    in training takes loss, gradient of the logits, of the head and of its input from each chunk
//    before the next. So a tied embedding receives the head's part of its gradient first and the
//    embedding's part last.
// 6. The results of a row depend on that row alone: not on B, nor on the place in the batch. On a
//    GPU, where the products take all rows at once, this holds up to the rounding of their sums.
// 7. All work goes to the one stream given; with an inline CPU stream the calls return finished.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/random.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "device/pool.hpp"
#include "layout/plan.hpp"

#include "model/config.hpp"
#include "model/layers.hpp"
#include "nn/hooks.hpp"
#include "ops/options.hpp"

namespace trireme::model {

using nn::Hooks;
using nn::NoHooks;

/// One micro-batch. tokens and targets are [B, T] int32; target t is token t + 1.
struct Batch {
  ConstView tokens;
  ConstView targets;
  /// Global index of row 0, for dropout, in memory of the device; the rows are consecutive samples.
  /// It counts through the whole run and never comes back, so every step has its own masks. Only
  /// training with dropout reads it.
  const std::uint64_t* first_sample = nullptr;
};

class Gpt {
 public:
  /// `micro_sequences` is the largest B of any call; products for a smaller one are made at its
  /// first use and kept. `dtype` is that of parameters and activations, fp32 or bf16; `seed` is
  /// that of dropout. Scratch is leased from `scratch`, which outlives the model; without one the
  /// model has a pool of its own. `options` are those of its products and attentions.
  Gpt(device::Device& device,
      const GptShape& shape,
      DType dtype,
      std::int64_t micro_sequences,
      std::uint64_t seed,
      device::ScratchPool* scratch = nullptr,
      const ops::Options& options = {});
  ~Gpt();
  Gpt(const Gpt&) = delete;
  Gpt& operator=(const Gpt&) = delete;

  /// Views in registration order; gradients fp32, may be empty for evaluation and sampling.
  void bind(std::vector<ConstView> parameters, std::vector<View> gradients);

  /// Adds the gradient of the mean over B·T of the loss to the bound gradients; dropout is on.
  /// losses = [B, T] fp32, one per token, unscaled. `last_micro_step`: gradient_ready is called.
  void train(
      const Batch& batch, View losses, bool last_micro_step, Hooks& hooks, device::Stream& stream);

  /// Losses per token without dropout and without gradients. B may be smaller than micro_sequences.
  void evaluate(const Batch& batch, View losses, Hooks& hooks, device::Stream& stream);

  /// Logits [V] fp32 after the last of `tokens` ([n], 1 <= n <= context): for sampling. Runs one
  /// row of the whole context, filled up with token 0: what follows a token does not reach it
  /// through causal attention, so the result is exact.
  void next_logits(ConstView tokens, View logits, Hooks& hooks, device::Stream& stream);

  [[nodiscard]] const GptShape& shape() const;
  /// Bytes of what is kept between forward and backward; scratch is the pool's.
  [[nodiscard]] std::size_t activation_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::model
