// SPDX-License-Identifier: Apache-2.0
#include <span>

#include "model/layers.hpp"

namespace trireme::model {

void Layers::announce(const nn::Call& call, std::size_t begin, std::size_t end) const {
  call.hooks.before_use(std::span(indices_).subspan(begin, end - begin), call.stream);
}

void Layers::announce_embedding_norm(const nn::Call& call) const {
  if (begin_of_embedding_norm_ < group_begin_[1])
    announce(call, begin_of_embedding_norm_, group_begin_[1]);
}

void Layers::forward(const nn::Call& call, ConstView tokens) const {
  announce(call, 0);
  embedding->forward(call, embedded(call), tokens);
  if (embedding_norm)
    embedding_norm->forward(call, embedded(call));
  announce(call, 1);
  norm(0).forward(call, stream(call, 0));
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    const nn::Branch& branch = *residuals[i].branch;
    branch.forward_inside(call, norm(i).output(call));
    branch.forward_output(call);
    if ((i + 1) % per_block == 0)
      announce(call, (i + 1) / per_block + 1);
    add_and_normalize(call, i);
  }
}

void Layers::add_and_normalize(const nn::Call& call, std::size_t i) const {
  norm(i + 1).forward_sum(call, stream(call, i + 1), stream(call, i),
                          call.narrow_of(shape.channels),
                          call.dropout_at(residuals[i].dropout_site));
}

}  // namespace trireme::model
