// SPDX-License-Identifier: Apache-2.0
#include "optim/layer_norms.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/elementwise.hpp"

namespace trireme::optim {
namespace {

Update slice(const Update& whole, std::int64_t begin, std::int64_t elements) {
  Update part = whole;
  part.parameter = whole.parameter.slice(begin, elements);
  part.gradient = whole.gradient.slice(begin, elements);
  for (View& slot : part.state)
    if (slot.elements > 0)
      slot = slot.slice(begin, elements);
  part.begin += begin;
  return part;
}

}  // namespace

LayerNorms::LayerNorms(const layout::Plan& plan, device::Device& device)
    : plan_(plan),
      before_(device.allocate(
          device.kind() == device::Kind::cpu ? std::size_t{1} << 20U : std::size_t{16} << 20U,
          "weights before an update")) {
  for (int layer = 0; layer <= plan.parameters().back().group; ++layer)
    layers_.push_back(std::make_unique<Sums>(device));
}

void LayerNorms::begin(double gradient_scale, device::Stream& stream) {
  gradient_scale_ = gradient_scale;
  for (const auto& layer : layers_)
    for (auto* sum : {&layer->gradient, &layer->weight, &layer->update}) sum->clear(stream);
}

void LayerNorms::add_gradient(ParameterIndex parameter,
                              ConstView gradient,
                              device::Stream& stream) {
  sums_of(parameter).gradient.add_squares(gradient, stream);
}

void LayerNorms::update(Rule& rule,
                        const Update& update,
                        std::span<const layout::Piece> own,
                        const ops::GradientNorm& norm,
                        device::Stream& stream) {
  const auto chunk = static_cast<std::int64_t>(before_.bytes() / size_bytes(DType::f32));
  const std::int64_t end = update.begin + update.parameter.elements;
  for (std::int64_t at = update.begin; at < end; at += chunk) {
    const Update part = slice(update, at - update.begin, std::min(chunk, end - at));
    // At most one piece of a bucket is this parameter's.
    const auto mine = std::ranges::find(own, update.index, &layout::Piece::parameter);
    const std::int64_t first = mine == own.end() ? 0 : std::max(at, mine->parameter_begin);
    const std::int64_t last = mine == own.end() ? 0
                                                : std::min(at + part.parameter.elements,
                                                           mine->parameter_begin + mine->elements);
    if (first >= last) {
      rule.update({&part, 1}, norm, stream);
      continue;
    }
    const View master = part.state.front().slice(first - at, last - first);
    const View difference = before_.view(DType::f32).slice(0, last - first);
    stream.device().copy(difference, master, stream);
    rule.update({&part, 1}, norm, stream);
    run(ops::Add{.sum = difference, .term = master, .sign = -1}, stream);
    sums_of(update.index).update.add_squares(difference, stream);
    sums_of(update.index).weight.add_squares(master, stream);
  }
}

void LayerNorms::fetch(device::Stream& stream) {
  for (const auto& layer : layers_)
    for (auto* sum : {&layer->gradient, &layer->weight, &layer->update}) sum->fetch(stream);
}

std::vector<LayerNorm> LayerNorms::norms(comm::World& world) {
  std::vector<ops::OrderFreeSum*> sums;
  for (const auto& layer : layers_)
    for (auto* sum : {&layer->gradient, &layer->weight, &layer->update})
      sums.push_back(&sum->fetched());
  std::vector<std::int64_t> words;
  for (ops::OrderFreeSum* sum : sums)
    words.insert(words.end(), sum->words().begin(), sum->words().end());
  world.sum(words);
  std::vector<LayerNorm> norms;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    std::array<double, 3> roots{};
    for (std::size_t i = 0; i < roots.size(); ++i)
      roots.at(i) = std::sqrt(ops::value_of_words(words.data() + (3 * layer + i) * ops::num_words));
    norms.push_back({gradient_scale_ * roots[0], roots[1], roots[2]});
  }
  return norms;
}

}  // namespace trireme::optim
