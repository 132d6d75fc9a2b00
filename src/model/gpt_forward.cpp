// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.hpp"
#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "ops/layer_norm.hpp"

#include "model/gpt_impl.hpp"

namespace trireme::model {

void Gpt::Impl::forward(const Call& call, ConstView tokens) const {
  const Activations& all = call.batch.activations;
  const ops::EmbeddingShape embedding{.batch = call.batch.batch,
                                      .time = shape.context,
                                      .channels = shape.channels,
                                      .vocabulary = shape.vocabulary};
  announce(call, set_.wte, 2);
  ops::embedding_forward(all.blocks.front().x, tokens, value(set_.wte), value(set_.wpe), embedding,
                         embedding_dropout(call), call.stream);
  announce(call, set_.blocks.front().first, set_.blocks.front().count);
  forward_norm_1(call, 0, all.blocks.front());
  for (std::size_t l = 0; l < all.blocks.size(); ++l) {
    // Evaluation needs nothing of a block once it has left it: block 0's memory serves all.
    const BlockActivations& a = all.blocks[call.training ? l : 0];
    forward_attention(call, l, a);
    const View gelu = forward_mlp_inside(call, a, set_.blocks[l]);
    call.batch.mlp_projection.forward(call.narrow, gelu,
                                      value(set_.blocks[l].mlp_projection.weight),
                                      value(set_.blocks[l].mlp_projection.bias), call.stream);
    const ops::Dropout dropout = block_dropout(call, l, DropoutSite::mlp_residual);
    if (l + 1 < all.blocks.size()) {
      const BlockParameters& p = set_.blocks[l + 1];
      const BlockActivations& next = all.blocks[call.training ? l + 1 : 0];
      announce(call, p.first, p.count);
      add_and_normalize(call, {next.x, next.norm_1, next.mean_1, next.rstd_1}, a.x_middle, p.ln_1,
                        dropout);
    } else {
      announce(call, set_.ln_f.weight, set_.table.size() - at(set_.ln_f.weight));
      add_and_normalize(call,
                        {call.training ? all.x_last : a.x, all.norm_f, all.mean_f, all.rstd_f},
                        a.x_middle, set_.ln_f, dropout);
    }
  }
}

void Gpt::Impl::forward_norm_1(const Call& call, std::size_t l, const BlockActivations& a) const {
  const WeightAndBias& p = set_.blocks[l].ln_1;
  ops::layer_norm_forward(a.norm_1, a.mean_1, a.rstd_1, a.x, value(p.weight), value(p.bias),
                          call.stream);
}

void Gpt::Impl::add_and_normalize(const Call& call,
                                  const NormedSum& to,
                                  ConstView x,
                                  const WeightAndBias& p,
                                  const ops::Dropout& dropout) const {
  ops::residual_layer_norm_forward(to.x, to.norm, to.mean, to.rstd, x, call.narrow, value(p.weight),
                                   value(p.bias), shape.context, dropout, call.stream);
}

void Gpt::Impl::forward_attention(const Call& call,
                                  std::size_t l,
                                  const BlockActivations& a) const {
  const BlockParameters& p = set_.blocks[l];
  const BatchPlan& batch = call.batch;
  batch.qkv.forward(a.qkv, a.norm_1, value(p.qkv.weight), value(p.qkv.bias), call.stream);
  batch.attention.forward(a.attention, a.lse, a.qkv, block_dropout(call, l, DropoutSite::attention),
                          call.stream);
  batch.attention_projection.forward(call.narrow, a.attention, value(p.attention_projection.weight),
                                     value(p.attention_projection.bias), call.stream);
  add_and_normalize(call, {a.x_middle, a.norm_2, a.mean_2, a.rstd_2}, a.x, p.ln_2,
                    block_dropout(call, l, DropoutSite::attention_residual));
}

View Gpt::Impl::forward_mlp_inside(const Call& call,
                                   const BlockActivations& a,
                                   const BlockParameters& p) const {
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
