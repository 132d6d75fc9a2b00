// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.hpp"
#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "ops/layer_norm.hpp"

#include "model/gpt_impl.hpp"

namespace trireme::model {

View Gpt::Impl::forward(const Call& call, ConstView tokens) const {
  const Activations& all = call.batch.activations;
  const ops::EmbeddingShape embedding{.batch = call.batch.batch,
                                      .time = shape.context,
                                      .channels = shape.channels,
                                      .vocabulary = shape.vocabulary};
  announce(call, set_.wte, 2);
  ops::embedding_forward(all.blocks.front().x, tokens, value(set_.wte), value(set_.wpe), embedding,
                         embedding_dropout(call), call.stream);
  for (std::size_t l = 0; l < all.blocks.size(); ++l) {
    // Evaluation needs nothing of a block once it has left it: block 0's memory serves all.
    const BlockActivations& a = all.blocks[call.training ? l : 0];
    const View out = !call.training              ? a.x
                     : l + 1 < all.blocks.size() ? all.blocks[l + 1].x
                                                 : all.x_last;
    announce(call, set_.blocks[l].first, set_.blocks[l].count);
    forward_attention(call, l, a);
    forward_mlp(call, l, a, out);
  }
  return call.training ? all.x_last : all.blocks.front().x;
}

void Gpt::Impl::forward_attention(const Call& call,
                                  std::size_t l,
                                  const BlockActivations& a) const {
  const BlockParameters& p = set_.blocks[l];
  const BatchPlan& batch = call.batch;
  const View branch = call.narrow;
  ops::layer_norm_forward(a.norm_1, a.mean_1, a.rstd_1, a.x, value(p.ln_1.weight),
                          value(p.ln_1.bias), call.stream);
  batch.qkv.forward(a.qkv, a.norm_1, value(p.qkv.weight), value(p.qkv.bias), call.stream);
  batch.attention.forward(a.attention, a.lse, a.qkv, block_dropout(call, l, DropoutSite::attention),
                          call.stream);
  batch.attention_projection.forward(branch, a.attention, value(p.attention_projection.weight),
                                     value(p.attention_projection.bias), call.stream);
  ops::residual_forward(a.x_middle, a.x, branch, shape.context * shape.channels,
                        block_dropout(call, l, DropoutSite::attention_residual), call.stream);
}

void Gpt::Impl::forward_mlp(const Call& call,
                            std::size_t l,
                            const BlockActivations& a,
                            View out) const {
  const BlockParameters& p = set_.blocks[l];
  const BatchPlan& batch = call.batch;
  const View branch = call.narrow;
  const View gelu = forward_mlp_inside(call, l, a);
  batch.mlp_projection.forward(branch, gelu, value(p.mlp_projection.weight),
                               value(p.mlp_projection.bias), call.stream);
  ops::residual_forward(out, a.x_middle, branch, shape.context * shape.channels,
                        block_dropout(call, l, DropoutSite::mlp_residual), call.stream);
}

View Gpt::Impl::forward_mlp_inside(const Call& call,
                                   std::size_t l,
                                   const BlockActivations& a) const {
  const BlockParameters& p = set_.blocks[l];
  ops::layer_norm_forward(a.norm_2, a.mean_2, a.rstd_2, a.x_middle, value(p.ln_2.weight),
                          value(p.ln_2.bias), call.stream);
  const Linear& fc = call.batch.fc;
  const View gelu = gelu_of(call, a);
  if (fc.shape().gelu_behind) {
    fc.forward_gelu(gelu, a.fc, a.norm_2, value(p.fc.weight), value(p.fc.bias), call.stream);
  } else {
    fc.forward(a.fc, a.norm_2, value(p.fc.weight), value(p.fc.bias), call.stream);
    ops::gelu_forward(gelu, a.fc, call.stream);
  }
  return gelu;
}

void Gpt::Impl::forward_head_norm(const Call& call, View x) const {
  const Activations& a = call.batch.activations;
  announce(call, set_.ln_f.weight, set_.table.size() - at(set_.ln_f.weight));
  ops::layer_norm_forward(a.norm_f, a.mean_f, a.rstd_f, x, value(set_.ln_f.weight),
                          value(set_.ln_f.bias), call.stream);
}

void Gpt::Impl::evaluate_head(const Call& call, ConstView targets, View losses) const {
  const device::Lease all_logits = lease(plan.scratch().logits, call.stream);
  for (const HeadChunk& chunk : call.batch.head) {
    const View logits = all_logits.view().slice(0, chunk.rows * shape.vocabulary);
    chunk.linear->forward(logits, chunk.norm, value(set_.head), {}, call.stream);
    ops::cross_entropy_forward(losses.slice(chunk.begin, chunk.rows), logits,
                               targets.slice(chunk.begin, chunk.rows), call.stream);
  }
}

}  // namespace trireme::model
