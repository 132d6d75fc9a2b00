// SPDX-License-Identifier: Apache-2.0
#include <span>

#include "model/layers.hpp"

namespace trireme::model {

void Layers::announce(const nn::Call& call, ParameterIndex first, std::size_t count) const {
  call.hooks.before_use(std::span(indices_).subspan(at(first), count), call.stream);
}

void Layers::announce_at(const nn::Call& call, std::size_t i) const {
  for (const Block& block : blocks)
    if (block.begin == i)
      announce(call, block.first, block.count);
  if (i == residuals.size())
    announce(call, first_after_blocks, indices_.size() - at(first_after_blocks));
}

void Layers::announce_backward(const nn::Call& call, std::size_t l) const {
  announce(call, blocks[l].first, blocks[l].count);
}

void Layers::announce_embedding_norm(const nn::Call& call) const {
  const std::size_t count = at(blocks.front().first) - at(first_of_embedding_norm);
  if (count > 0)
    announce(call, first_of_embedding_norm, count);
}

void Layers::forward(const nn::Call& call, ConstView tokens) const {
  announce(call, ParameterIndex{}, at(blocks.front().first));
  embedding->forward(call, embedded(call), tokens);
  if (embedding_norm)
    embedding_norm->forward(call, embedded(call));
  announce_at(call, 0);
  norm(0).forward(call, stream(call, 0));
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    const nn::Branch& branch = *residuals[i].branch;
    branch.forward_inside(call, norm(i).output(call));
    branch.forward_output(call);
    announce_at(call, i + 1);
    add_and_normalize(call, i);
  }
}

void Layers::add_and_normalize(const nn::Call& call, std::size_t i) const {
  norm(i + 1).forward_sum(call, stream(call, i + 1), stream(call, i),
                          call.narrow_of(shape.channels),
                          call.dropout_at(residuals[i].dropout_site));
}

}  // namespace trireme::model
