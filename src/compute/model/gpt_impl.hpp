// SPDX-License-Identifier: Apache-2.0
// Inside of Gpt: its memory, its calls, and the walk backward; forward is Layers'. No layer is
// known by its kind.
//
// 1. Training keeps the activations of every block; evaluation lets all blocks use those of block
//    0.
// 2. Scratch is leased for as long as it is needed: `narrow` and `wide` for a whole call, the
//    logits for the head, the rest for backward.
// 3. Sizes are planned for `micro_sequences`, the largest batch; products are made once for each
//    batch size, at its first use. A step that uses a known size allocates nothing.
// 4. One host thread; all work goes to the stream of the call.
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
  /// Which of the sizes that the layers were prepared for, in the order of first use.
  std::size_t size_of(std::int64_t sequences);
  /// The batch's sequences. Throws ContractError where sizes or dtypes do not agree.
  std::int64_t checked_batch(const Batch& batch, const View& losses) const;
  nn::Call call_of(std::int64_t sequences, Hooks& hooks, device::Stream& stream);
  [[nodiscard]] View final_output(const nn::Call& call) const {
    return layers_.final_norm->output(call);
  }

  /// With recompute: block: what backward of this block reads, from the stream that entered it.
  void forward_again(const nn::Call& call, const Block& block) const;
  /// From the gradient of the final norm's output, in call.narrow, to those of the embeddings.
  void backward(const nn::Call& call, ConstView tokens) const;
  /// `dx` is the gradient of the stream, and d_branch room for it after dropout.
  void backward_residual(const nn::Call& call, std::size_t i, View dx, View d_branch) const;

  device::Device& device_;
  std::optional<device::ScratchPool> own_scratch_;  // when none is lent
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
