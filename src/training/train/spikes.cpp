// SPDX-License-Identifier: Apache-2.0
#include "train/spikes.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace trireme::train {
namespace {

/// The lower median. Requires: there are values.
double median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

double History::factor(double value) const {
  return values_.size() < least ? 1 : value / std::exp(median(values_));
}

bool History::stands_out(double value) const {
  if (values_.size() < least || !(factor(value) >= 3))
    return false;
  const double middle = median(values_);
  std::vector<double> distances;
  for (const double one : values_) distances.push_back(std::abs(one - middle));
  return std::log(value) - middle > 10 * median(std::move(distances));
}

void History::add(double value) {
  if (!(value > 0) || !std::isfinite(value))
    return;
  if (values_.size() < most)
    values_.push_back(std::log(value));
  else
    values_[next_++ % most] = std::log(value);
}

std::string layer_text(std::size_t layer, std::size_t layers) {
  return layer == 0            ? "the embeddings"
         : layer + 1 == layers ? "the final layer"
                               : fmt::format("block {}", layer - 1);
}

std::string Spikes::look(std::int64_t step,
                         double grad_norm,
                         std::span<const optim::LayerNorm> norms) {
  const bool before = spiking_;
  spiking_ = gradients_.stands_out(grad_norm);
  std::string line;
  if (spiking_ && !before) {
    line = fmt::format("step {}: the norm of the gradient, {:.3g}, is {:.1f} times its median",
                       step, grad_norm, gradients_.factor(grad_norm));
    std::size_t worst = 0;
    const auto factor = [&](std::size_t layer) {
      return layers_[layer].factor(norms[layer].gradient);
    };
    for (std::size_t layer = 1; layer < std::min(norms.size(), layers_.size()); ++layer)
      if (factor(layer) > factor(worst))
        worst = layer;
    if (!norms.empty() && !layers_.empty())
      line +=
          fmt::format(", that of {} {:.1f} times", layer_text(worst, norms.size()), factor(worst));
    line += fmt::format(". `trireme data DECK --step {}` lists the documents of this step", step);
  }
  gradients_.add(grad_norm);
  layers_.resize(std::max(layers_.size(), norms.size()));
  for (std::size_t layer = 0; layer < norms.size(); ++layer)
    layers_[layer].add(norms[layer].gradient);
  return line;
}

}  // namespace trireme::train
