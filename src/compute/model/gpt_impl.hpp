// SPDX-License-Identifier: Apache-2.0
// Implementation of Gpt: its memory, its calls, and the backward pass; Layers has the forward pass.
//
// 1. Training retains the activations of every block; in evaluation all blocks use those of block
//    0.
// 2. Scratch is leased while it is needed: `narrow` and `wide` for a whole call, the logits for the
//    head, the rest for backward.
// 3. Memory is planned for `micro_sequences`, the largest batch. Products are created at the first
//    use of a batch size; later steps of that size allocate nothing.
// 4. One host thread; all work is enqueued on the stream of the call.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "device/pool.hpp"

#include "model/gpt.hpp"
#include "model/layers.hpp"
#include "nn/call.hpp"
#include "nn/kernels.hpp"

namespace trireme::model {

class Gpt::Impl {
 public:
  Impl(device::Device& device,
       const GptShape& shape,
       DType dtype,
       std::int64_t micro_sequences,
       std::uint64_t seed,
       device::ScratchPool* scratch,
       const ops::Options& options);

  void bind(std::vector<ConstView> parameters, std::vector<View> gradients);
  void train(
      const Batch& batch, View losses, bool last_micro_step, Hooks& hooks, device::Stream& stream);
  void evaluate(const Batch& batch, View losses, Hooks& hooks, device::Stream& stream);
  void next_logits(ConstView tokens, View logits, Hooks& hooks, device::Stream& stream);

  [[nodiscard]] const GptShape& shape() const { return layers_.shape; }
  [[nodiscard]] std::size_t activation_bytes() const { return plan_.bytes(); }

 private:
  /// The index of a prepared batch size, in the order of first use.
  std::size_t size_of(std::int64_t sequences);
  /// The number of sequences. Throws ContractError if sizes or dtypes do not agree.
  std::int64_t checked_batch(const Batch& batch, const View& losses) const;
  nn::Call call_of(std::int64_t sequences, Hooks& hooks, device::Stream& stream);
  [[nodiscard]] View final_output(const nn::Call& call) const {
    return layers_.final_norm->output(call);
  }

  /// With recompute: block: recomputes the activations of the block from its input.
  void forward_again(const nn::Call& call, const Block& block) const;
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
  std::map<std::int64_t, std::size_t> sizes_;  // by sequences
  nn::Bound bound_;
};

}  // namespace trireme::model
