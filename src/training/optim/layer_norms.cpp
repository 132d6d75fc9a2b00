// SPDX-License-Identifier: Apache-2.0
#include "optim/layer_norms.hpp"

#include <algorithm>
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

LayerNorms::LayerNorms(const layout::Plan& plan, device::Device& device, std::int64_t chunk)
    : plan_(plan) {
  if (chunk == 0)
    chunk = std::int64_t{1} << (device.kind() == device::Kind::cpu ? 18 : 22);
  before_ = device.allocate(static_cast<std::size_t>(chunk) * size_bytes(DType::f32),
                            "weights before an update");
  const auto layers = static_cast<std::size_t>(plan.parameters().back().group + 1);
  for (Step& step : steps_)
    for (std::size_t i = 0; i < layers * num_sums; ++i)
      step.sums.push_back(std::make_unique<ops::StreamSum>(device));
}

void LayerNorms::begin(std::int64_t step, double gradient_scale, device::Stream& stream) {
  now_ = &steps_[static_cast<std::size_t>(step) % steps_.size()];
  now_->gradient_scale = gradient_scale;
  for (const auto& sum : now_->sums) sum->clear(stream);
}

void LayerNorms::add_gradient(ParameterIndex parameter,
                              ConstView gradient,
                              device::Stream& stream) {
  sum_of(parameter, gradient_sum).add_squares(gradient, stream);
}

void LayerNorms::add_gradients_to(ops::StreamSum& total, device::Stream& stream) {
  for (std::size_t i = gradient_sum; i < now_->sums.size(); i += num_sums)
    total.add(*now_->sums[i], stream);
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
    run(ops::Add{.sum = difference, .term = master, .factor = -1}, stream);
    sum_of(update.index, update_sum).add_squares(difference, stream);
    sum_of(update.index, weight_sum).add_squares(master, stream);
  }
}

void LayerNorms::fetch(device::Stream& stream) {
  for (const auto& sum : now_->sums) sum->fetch(stream);
}

std::vector<LayerNorm> LayerNorms::norms(std::int64_t step, comm::World& world) {
  const Step& measured = steps_[static_cast<std::size_t>(step) % steps_.size()];
  std::vector<std::int64_t> words;
  for (const auto& sum : measured.sums) {
    const auto of_one = sum->fetched().words();
    words.insert(words.end(), of_one.begin(), of_one.end());
  }
  world.sum(words);
  const auto root = [&](std::size_t sum) {
    return std::sqrt(ops::value_of_words(words.data() + sum * ops::num_words));
  };
  std::vector<LayerNorm> norms;
  for (std::size_t first = 0; first < measured.sums.size(); first += num_sums)
    norms.push_back({.gradient = measured.gradient_scale * root(first + gradient_sum),
                     .weight = root(first + weight_sum),
                     .update = root(first + update_sum)});
  return norms;
}

}  // namespace trireme::optim
