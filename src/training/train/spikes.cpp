// SPDX-License-Identifier: Apache-2.0
#include "train/spikes.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/quantile.hpp"

namespace trireme::train {
namespace {

/// "the embeddings", "block 3", "the final layer" for a layer of `layers`.
std::string layer_text(std::size_t layer, std::size_t layers) {
  return layer == 0            ? "the embeddings"
         : layer + 1 == layers ? "the final layer"
                               : fmt::format("block {}", layer - 1);
}

}  // namespace

double History::factor(double value) const {
  return values_.size() < least ? 1 : value / std::exp(median(values_));
}

bool History::stands_out(double value) const {
  return factor(value) >= 3 && std::log(value) - median(values_) > 10 * mad(values_);
}

void History::add(double value) {
  if (!(value > 0) || !std::isfinite(value))
    return;
  if (values_.size() < most)
    values_.push_back(std::log(value));
  else
    values_[next_++ % most] = std::log(value);
}

std::string Spikes::worst_layer(std::span<const optim::LayerNorm> norms) const {
  std::size_t worst = 0;
  double most = 1;
  for (std::size_t layer = 0; layer < std::min(norms.size(), layers_.size()); ++layer)
    if (const double factor = layers_[layer].factor(norms[layer].gradient); factor > most) {
      worst = layer;
      most = factor;
    }
  return most > 1 ? fmt::format("that of {} {:.1f} times", layer_text(worst, norms.size()), most)
                  : "";
}

std::string Spikes::look(std::int64_t step,
                         double grad_norm,
                         std::span<const optim::LayerNorm> norms) {
  const bool before = spiking_;
  spiking_ = gradients_.stands_out(grad_norm);
  std::string line;
  if (spiking_ && (!before || !named_)) {
    const std::string layer = worst_layer(norms);
    if (!before || !layer.empty())
      line = fmt::format(
          "the norm of the gradient, {:.3g}, is {:.1f} times its median{}{}. `trireme data DECK "
          "--step {}` lists the documents of this step",
          grad_norm, gradients_.factor(grad_norm), layer.empty() ? "" : ", ", layer, step);
    named_ = !layer.empty();
  }
  gradients_.add(grad_norm);
  layers_.resize(std::max(layers_.size(), norms.size()));
  for (std::size_t layer = 0; layer < norms.size(); ++layer)
    layers_[layer].add(norms[layer].gradient);
  return line;
}

}  // namespace trireme::train
