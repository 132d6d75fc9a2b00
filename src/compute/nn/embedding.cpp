// SPDX-License-Identifier: Apache-2.0
#include "nn/embedding.hpp"

namespace trireme::nn {

Embedding::Embedding(Registry& registry, const EmbeddingConfig& config)
    : config_(config),
      tokens_(registry.add({.name = "wte.weight",
                            .shape = {config.vocabulary, config.channels},
                            .own_bucket = config.shared},
                           {.deviation = config.deviation})),
      positions_(config.positions ? registry.add({.name = "wpe.weight",
                                                  .shape = {config.context, config.channels}},
                                                 {.deviation = config.deviation})
                                  : absent),
      dropout_site_(registry.add_dropout_site()) {}

ops::EmbeddingShape Embedding::shape(const Call& call) const {
  return {.batch = call.sequences,
          .time = call.context,
          .channels = config_.channels,
          .vocabulary = config_.vocabulary};
}

void Embedding::forward(const Call& call, View x, ConstView tokens) const {
  run(ops::EmbeddingForward{.out = x,
                            .tokens = tokens,
                            .positions = call.positions(),
                            .wte = call.value(tokens_),
                            .wpe = call.value(positions_),
                            .shape = shape(call),
                            .dropout = call.dropout_at(dropout_site_)},
      call.stream);
}

void Embedding::backward(const Call& call, ConstView dx, ConstView tokens) const {
  run(ops::EmbeddingBackward{.dwte = call.gradient(tokens_),
                             .dwpe = call.gradient(positions_),
                             .dout = dx,
                             .tokens = tokens,
                             .shape = shape(call),
                             .dropout = call.dropout_at(dropout_site_)},
      call.stream);
  call.ready(positions_);
  call.ready(tokens_);
}

}  // namespace trireme::nn
