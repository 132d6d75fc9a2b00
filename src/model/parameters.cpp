// SPDX-License-Identifier: Apache-2.0
#include "model/parameters.hpp"

#include <cmath>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"

#include "model/gpt.hpp"

namespace trireme::model {
namespace {

// Radford et al. 2019, section 2.3: the layers that write to the residual stream are scaled by one
// over the square root of their number. The deviation of 0.02 is that of the published code
// (github.com/openai/gpt-2, src/model.py), which shows no such scaling and has 0.01 for the
// position embedding; here that one has 0.02 as well, as in later implementations (nanoGPT, llm.c).
constexpr double deviation = 0.02;

}  // namespace

ParameterSet::ParameterSet(const GptShape& shape) {
  const std::int64_t C = shape.channels;
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(shape.layers));
  wte = add("wte.weight", {shape.vocabulary, C}, {.deviation = deviation});
  table.back().own_bucket = shape.tied_head;
  wpe = add("wpe.weight", {shape.context, C}, {.deviation = deviation});
  blocks.reserve(static_cast<std::size_t>(shape.layers));
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    const std::string h = fmt::format("h.{}.", l);
    BlockParameters block;
    block.first = static_cast<ParameterIndex>(table.size());
    block.ln_1 = add_norm(h + "ln_1", shape);
    block.qkv = add_linear(h + "attn.qkv", 3 * C, C, deviation, shape.bias);
    block.attention_projection = add_linear(h + "attn.proj", C, C, residual, shape.bias);
    block.ln_2 = add_norm(h + "ln_2", shape);
    block.fc = add_linear(h + "mlp.fc", 4 * C, C, deviation, shape.bias);
    block.mlp_projection = add_linear(h + "mlp.proj", C, 4 * C, residual, shape.bias);
    block.count = table.size() - at(block.first);
    blocks.push_back(block);
  }
  ln_f = add_norm("ln_f", shape);
  head =
      shape.tied_head ? wte : add("head.weight", {shape.vocabulary, C}, {.deviation = deviation});
}

ParameterIndex ParameterSet::add(std::string name, std::vector<std::int64_t> shape, Initial start) {
  layout::Parameter parameter{.name = std::move(name), .shape = std::move(shape)};
  parameter.decay = parameter.shape.size() >= 2;
  table.push_back(std::move(parameter));
  initial.push_back(start);
  return static_cast<ParameterIndex>(table.size() - 1);
}

WeightAndBias ParameterSet::add_norm(const std::string& name, const GptShape& shape) {
  WeightAndBias norm;
  norm.weight = add(name + ".weight", {shape.channels}, {.constant = 1});
  if (shape.bias)
    norm.bias = add(name + ".bias", {shape.channels}, {});
  return norm;
}

WeightAndBias ParameterSet::add_linear(
    const std::string& name, std::int64_t out, std::int64_t in, double spread, bool bias) {
  WeightAndBias linear;
  linear.weight = add(name + ".weight", {out, in}, {.deviation = spread});
  if (bias)
    linear.bias = add(name + ".bias", {out}, {});
  return linear;
}

std::vector<layout::Parameter> parameter_table(const GptShape& shape) {
  return ParameterSet(shape).table;
}

void initialize_parameter(const GptShape& shape,
                          ParameterIndex parameter,
                          std::uint64_t seed,
                          View values,
                          std::int64_t begin) {
  const ParameterSet set(shape);
  TRIREME_EXPECT(parameter > absent && at(parameter) < set.table.size(),
                 "parameter {} of a model with {}", static_cast<std::int32_t>(parameter),
                 set.table.size());
  const layout::Parameter& which = set.table[at(parameter)];
  const std::int64_t end = begin + values.elements;
  TRIREME_EXPECT(begin >= 0 && end <= which.elements(), "elements {} to {} of {}, which has {}",
                 begin, end, which.name, which.elements());
  const Initial start = set.initial[at(parameter)];
  const RandomKey key = RandomKey::of(seed, Draw::initialize);
  auto* to = values.as<float>();
  // Four words make two normals.
#pragma omp parallel for schedule(static)
  for (std::int64_t pair = begin / 2; pair < (end + 1) / 2; ++pair) {
    const Words4 words = start.deviation > 0
                             ? philox(key, static_cast<std::uint64_t>(pair), at(parameter))
                             : Words4{};
    for (std::int64_t i = 0; i < 2; ++i)
      if (const std::int64_t element = 2 * pair + i; element >= begin && element < end)
        to[element - begin] =
            start.deviation > 0
                ? static_cast<float>(start.deviation * normal(words.w[2 * i], words.w[2 * i + 1]))
                : start.constant;
  }
}

double flops_per_token(const GptShape& shape) {
  double elements = 0;
  for (const layout::Parameter& parameter : parameter_table(shape))
    elements += static_cast<double>(parameter.elements());
  return 6.0 * elements + 6.0 * static_cast<double>(shape.layers * shape.channels) *
                              static_cast<double>(shape.context);
}

}  // namespace trireme::model
