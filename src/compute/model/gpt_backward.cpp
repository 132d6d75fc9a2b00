// SPDX-License-Identifier: Apache-2.0
// Backward visits the parameters in reverse registration order: a bias before its weight, a layer's
// own gradients before its input's, so that a gradient is reported as early as possible.
// Activations that forward did not retain are recomputed just before they are needed, with the same
// ops as in forward.
#include "model/gpt.hpp"
#include "ops/elementwise.hpp"

namespace trireme::model {

void Gpt::backward(const nn::Call& call, ConstView tokens) const {
  const std::int64_t elements = call.rows() * layers_.shape.channels;
  const device::Lease all_dx = call.lease(plan_.scratch().dx);
  const device::Lease all_d_branch = call.lease(plan_.scratch().d_branch);
  const View dx = all_dx.view().slice(0, elements);
  const View d_branch = all_d_branch.view().slice(0, call.dropout.active() ? elements : 0);
  layers_.final_norm->backward(call, dx, call.narrow_of(layers_.shape.channels),
                               layers_.stream(call, layers_.residuals.size()), false);
  bool in_place = true;  // activations of the last block that shares memory are still valid
  constexpr std::size_t per_block = Layers::per_block;
  for (auto l = static_cast<std::size_t>(layers_.shape.layers); l-- > 0;) {
    layers_.announce(call, l + 1);
    if (layers_.shape.recompute.of(l) == Recompute::block) {
      if (!in_place)
        forward_again(call, l * per_block);
      in_place = false;
    }
    for (std::size_t i = (l + 1) * per_block; i-- > l * per_block;)
      backward_residual(call, i, dx, d_branch);
  }
  if (!layers_.embedding_norm) {
    layers_.embedding->backward(call, dx, tokens);
    return;
  }
  layers_.announce_embedding_norm(call);
  const View d_embedded = call.narrow_of(layers_.shape.channels);
  layers_.embedding_norm->backward(call, d_embedded, dx, layers_.embedded(call), false);
  layers_.embedding->backward(call, d_embedded, tokens);
}

void Gpt::forward_again(const nn::Call& call, std::size_t first) const {
  layers_.norm(first).forward(call, layers_.stream(call, first));
  for (std::size_t i = first;; ++i) {
    const nn::Branch& branch = *layers_.residuals[i].branch;
    branch.forward_inside(call, layers_.norm(i).output(call));
    if (i + 1 == first + Layers::per_block)
      return;
    branch.forward_output(call);
    layers_.add_and_normalize(call, i);
  }
}

void Gpt::backward_residual(const nn::Call& call, std::size_t i, View dx, View d_branch) const {
  const Residual& residual = layers_.residuals[i];
  const std::int64_t C = layers_.shape.channels;
  if (call.dropout.active())
    run(ops::DropoutBackward{.dbranch = d_branch,
                             .dy = dx,
                             .elements_per_sample = layers_.shape.context * C,
                             .dropout = call.dropout_at(residual.dropout_site)},
        call.stream);
  residual.branch->backward(call, call.dropout.active() ? d_branch : dx,
                            residual.norm->output(call));
  residual.norm->backward(call, dx, call.narrow_of(C), layers_.stream(call, i), true);
}

}  // namespace trireme::model
