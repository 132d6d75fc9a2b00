// SPDX-License-Identifier: Apache-2.0
// Inside of Gpt: the pieces of forward and backward, one small function per part of the model.
//
// What depends on B (views, products, attention) lives in a BatchPlan, so the step path looks up
// one object. Training keeps the activations of every block; evaluation lets all blocks use those
// of block 0. Scratch is leased for as long as it is needed: `narrow` and `wide` for a whole call,
// the logits for the head, the rest for backward.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "device/pool.hpp"

#include "ops/attention.hpp"
#include "ops/dropout.hpp"

#include "model/activations.hpp"
#include "model/gpt.hpp"
#include "model/linear.hpp"
#include "model/parameters.hpp"

namespace trireme::model {

/// A chunk of rows of the head.
struct HeadChunk {
  std::int64_t begin = 0, rows = 0;
  Linear* linear = nullptr;
  View norm;  ///< these rows of norm_f
};

/// Everything for one B.
struct BatchPlan {
  std::int64_t batch = 0;
  Activations activations;
  Linear qkv, attention_projection, fc, mlp_projection;
  ops::Attention attention;
  std::vector<HeadChunk> head;
};

/// The dropout sites of the model; block l has three behind the embedding's.
enum class DropoutSite : std::uint32_t { attention = 1, attention_residual = 2, mlp_residual = 3 };

class Gpt::Impl {
 public:
  Impl(device::Device& device,
       const GptShape& shape,
       DType dtype,
       std::int64_t micro_sequences,
       std::uint64_t seed,
       device::ScratchPool* scratch);

  void bind(std::vector<ConstView> parameters, std::vector<View> gradients);
  void train(
      const Batch& batch, View losses, bool last_micro_step, Hooks& hooks, device::Stream& stream);
  void evaluate(const Batch& batch, View losses, Hooks& hooks, device::Stream& stream);
  void next_logits(ConstView tokens, View logits, Hooks& hooks, device::Stream& stream);

  const GptShape shape;
  const ActivationPlan plan;

 private:
  /// One call of train, evaluate or next_logits.
  struct Call {
    BatchPlan& batch;
    const std::uint64_t* first_sample = nullptr;
    bool training = false;
    bool report = false;  ///< gradient_ready speaks
    Hooks& hooks;
    device::Stream& stream;
    // Scratch of this call; what is not leased yet is empty.
    View narrow{}, wide{}, dx{}, d_branch{};
  };

  // gpt.cpp
  [[nodiscard]] device::Lease lease(const ActivationPlan::Item& item, device::Stream& stream) const;
  BatchPlan& batch_plan(std::int64_t batch);
  Linear& head_linear(std::int64_t rows);
  std::int64_t checked_batch(const Batch& batch, const View& losses) const;
  [[nodiscard]] ConstView value(ParameterIndex index) const;
  [[nodiscard]] View gradient(ParameterIndex index) const;
  void announce(const Call& call, ParameterIndex first, std::size_t count) const;
  static void report(const Call& call, ParameterIndex index);
  [[nodiscard]] ops::Dropout embedding_dropout(const Call& call) const;
  [[nodiscard]] ops::Dropout block_dropout(const Call& call, std::size_t l, DropoutSite site) const;

  /// The residual stream behind a branch, and its norm.
  struct NormedSum {
    View x, norm, mean, rstd;
  };

  // gpt_forward.cpp; all return or fill views of the call's activations
  /// Up to the final norm.
  void forward(const Call& call, ConstView tokens) const;
  /// By itself for the first block, and where backward begins a block again: every other norm comes
  /// with the sum before it.
  void forward_norm_1(const Call& call, std::size_t l, const BlockActivations& a) const;
  /// From norm_1 to norm_2.
  void forward_attention(const Call& call, std::size_t l, const BlockActivations& a) const;
  /// From norm_2 to the GELU's output, which is returned.
  [[nodiscard]] View forward_mlp_inside(const Call& call,
                                        const BlockActivations& a,
                                        const BlockParameters& p) const;
  /// to.x = x + dropout(narrow), to.norm = its layer norm.
  void add_and_normalize(const Call& call,
                         const NormedSum& to,
                         ConstView x,
                         const WeightAndBias& p,
                         const ops::Dropout& dropout) const;
  /// Where the GELU's output goes and, once there, comes from.
  [[nodiscard]] static View gelu_of(const Call& call, const BlockActivations& a) {
    return a.gelu.empty() ? call.wide : a.gelu;
  }
  void evaluate_head(const Call& call, ConstView targets, View losses) const;

  // gpt_backward.cpp
  void train_head(const Call& call, ConstView targets, View losses) const;
  void backward(Call& call, ConstView tokens) const;
  void backward_mlp(const Call& call, std::size_t l) const;
  void backward_attention(const Call& call, std::size_t l) const;
  void backward_linear(const Call& call,
                       const Linear& linear,
                       const WeightAndBias& which,
                       ConstView dy,
                       ConstView x,
                       bool has_bias_gradient) const;
  /// What backward of a layer norm reads.
  struct Normed {
    ConstView dy, x, mean, rstd;
  };
  /// `bias_below`: of the linear layer whose output was the last that x grew by.
  void backward_norm(const Call& call,
                     const WeightAndBias& which,
                     ParameterIndex bias_below,
                     const Normed& saved,
                     bool accumulate) const;
  /// Without dropout the gradient of a branch's output is that of the residual stream, which the
  /// norm behind it has at hand.
  [[nodiscard]] bool norms_take_biases() const { return shape.dropout == 0; }
  /// The gradient of what a branch adds to the residual stream: dx behind the branch's dropout.
  [[nodiscard]] View branch_gradient(const Call& call, std::size_t l, DropoutSite site) const;

  device::Device& device_;
  std::optional<device::ScratchPool> own_scratch_;  // when nobody lends one
  device::ScratchPool& scratch_;
  const DType dtype_;
  const std::int64_t micro_sequences_;
  const RandomKey dropout_key_;
  const ParameterSet set_;
  std::vector<ParameterIndex> indices_;  // 0, 1, …: spans of it go to before_use
  device::Buffer buffer_;
  std::map<std::int64_t, Linear> heads_;                        // by rows
  std::map<std::int64_t, std::unique_ptr<BatchPlan>> batches_;  // by B
  std::vector<ConstView> values_;
  std::vector<View> gradients_;
};

}  // namespace trireme::model
