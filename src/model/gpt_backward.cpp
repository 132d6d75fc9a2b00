// SPDX-License-Identifier: Apache-2.0
// Backward visits the parameters in reverse registration order: a bias before its weight, a layer's
// own gradients before its input's, so that a gradient is reported as early as it can be. What
// forward did not keep is computed again just before it is needed, by the very ops of forward.
#include "ops/cross_entropy.hpp"
#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "ops/layer_norm.hpp"

#include "model/gpt_impl.hpp"

namespace trireme::model {

void Gpt::Impl::train_head(const Call& call, ConstView targets, View losses) const {
  const float scale = 1.0F / static_cast<float>(losses.elements);
  const device::Lease all_logits = lease(plan.scratch().logits, call.stream);
  const device::Lease rounded = lease(plan.scratch().d_logits, call.stream);
  const bool rounds = plan.scratch().d_logits.elements > 0;
  for (const HeadChunk& chunk : call.batch.head) {
    const std::int64_t count = chunk.rows * shape.vocabulary;
    const View logits = all_logits.view().slice(0, count);
    const View d_logits = rounds ? rounded.view().slice(0, count) : logits;
    const View d_norm =
        call.narrow.slice(chunk.begin * shape.channels, chunk.rows * shape.channels);
    chunk.linear->forward(logits, chunk.norm, value(set_.head), {}, call.stream);
    ops::cross_entropy_forward_backward(losses.slice(chunk.begin, chunk.rows), d_logits, logits,
                                        targets.slice(chunk.begin, chunk.rows), scale, call.stream);
    chunk.linear->backward_weight(gradient(set_.head), d_logits, chunk.norm, call.stream);
    chunk.linear->backward_input(d_norm, d_logits, value(set_.head), call.stream);
  }
  if (!shape.tied_head)
    report(call, set_.head);
}

void Gpt::Impl::backward(Call& call, ConstView tokens) const {
  const Activations& a = call.batch.activations;
  const device::Lease dx = lease(plan.scratch().dx, call.stream);
  const device::Lease d_branch = lease(plan.scratch().d_branch, call.stream);
  call.dx = dx.view().slice(0, call.narrow.elements);
  call.d_branch =
      shape.dropout > 0 ? d_branch.view().slice(0, call.narrow.elements) : d_branch.view();
  backward_norm(call, set_.ln_f, set_.blocks.back().mlp_projection.bias,
                {call.narrow, a.x_last, a.mean_f, a.rstd_f}, false);
  for (std::size_t l = a.blocks.size(); l-- > 0;) {
    // Of the last block forward has left everything in place.
    if (shape.recompute == Recompute::block && l + 1 < a.blocks.size()) {
      forward_norm_1(call, l, a.blocks[l]);
      forward_attention(call, l, a.blocks[l]);
      static_cast<void>(forward_mlp_inside(call, a.blocks[l], set_.blocks[l]));
    }
    backward_mlp(call, l);
    backward_attention(call, l);
  }
  const ops::EmbeddingShape embedding{.batch = call.batch.batch,
                                      .time = shape.context,
                                      .channels = shape.channels,
                                      .vocabulary = shape.vocabulary};
  ops::embedding_backward(gradient(set_.wte), gradient(set_.wpe), call.dx, tokens, embedding,
                          embedding_dropout(call), call.stream);
  report(call, set_.wpe);
  report(call, set_.wte);
}

void Gpt::Impl::backward_mlp(const Call& call, std::size_t l) const {
  const BlockParameters& p = set_.blocks[l];
  const BatchPlan& batch = call.batch;
  const BlockActivations& a = batch.activations.blocks[l];
  const View narrow = call.narrow, wide = call.wide;
  const View dy = branch_gradient(call, l, DropoutSite::mlp_residual);
  const View gelu = gelu_of(call, a);
  if (shape.recompute == Recompute::gelu)
    ops::gelu_forward(gelu, a.fc, call.stream);
  backward_linear(call, batch.mlp_projection, p.mlp_projection, dy, gelu, norms_take_biases());
  batch.mlp_projection.backward_input_gelu(wide, a.fc, dy, value(p.mlp_projection.weight),
                                           call.stream);
  backward_linear(call, batch.fc, p.fc, wide, a.norm_2, false);
  batch.fc.backward_input(narrow, wide, value(p.fc.weight), call.stream);
  backward_norm(call, p.ln_2, p.attention_projection.bias, {narrow, a.x_middle, a.mean_2, a.rstd_2},
                true);
}

void Gpt::Impl::backward_attention(const Call& call, std::size_t l) const {
  const BlockParameters& p = set_.blocks[l];
  const BatchPlan& batch = call.batch;
  const BlockActivations& a = batch.activations.blocks[l];
  const View narrow = call.narrow;
  const View d_qkv = call.wide.slice(0, a.qkv.elements);
  const View dy = branch_gradient(call, l, DropoutSite::attention_residual);
  backward_linear(call, batch.attention_projection, p.attention_projection, dy, a.attention,
                  norms_take_biases());
  batch.attention_projection.backward_input(narrow, dy, value(p.attention_projection.weight),
                                            call.stream);
  batch.attention.backward(d_qkv, narrow, a.qkv, a.attention, a.lse,
                           block_dropout(call, l, DropoutSite::attention), call.stream);
  backward_linear(call, batch.qkv, p.qkv, d_qkv, a.norm_1, false);
  batch.qkv.backward_input(narrow, d_qkv, value(p.qkv.weight), call.stream);
  backward_norm(call, p.ln_1, l == 0 ? absent : set_.blocks[l - 1].mlp_projection.bias,
                {narrow, a.x, a.mean_1, a.rstd_1}, true);
}

void Gpt::Impl::backward_linear(const Call& call,
                                const Linear& linear,
                                const WeightAndBias& which,
                                ConstView dy,
                                ConstView x,
                                bool has_bias_gradient) const {
  if (which.bias != absent && !has_bias_gradient)
    ops::bias_backward(gradient(which.bias), dy, call.stream);
  report(call, which.bias);
  linear.backward_weight(gradient(which.weight), dy, x, call.stream);
  report(call, which.weight);
}

void Gpt::Impl::backward_norm(const Call& call,
                              const WeightAndBias& which,
                              ParameterIndex bias_below,
                              const Normed& saved,
                              bool accumulate) const {
  ops::layer_norm_backward(call.dx, gradient(which.weight), gradient(which.bias),
                           gradient(norms_take_biases() ? bias_below : absent), saved.dy, saved.x,
                           value(which.weight), saved.mean, saved.rstd, accumulate, call.stream);
  report(call, which.bias);
  report(call, which.weight);
}

View Gpt::Impl::branch_gradient(const Call& call, std::size_t l, DropoutSite site) const {
  const ops::Dropout dropout = block_dropout(call, l, site);
  if (!dropout.active())
    return call.dx;
  ops::dropout_backward(call.d_branch, call.dx, shape.context * shape.channels, dropout,
                        call.stream);
  return call.d_branch;
}

}  // namespace trireme::model
