// SPDX-License-Identifier: Apache-2.0
#include "nn/head.hpp"

#include <algorithm>
#include <map>

#include "base/round_up.hpp"

#include "ops/elementwise.hpp"

namespace trireme::nn {
namespace {

DType logits_dtype(const PlanSizes& sizes) {
  return sizes.kind == device::Kind::cpu ? DType::f32 : sizes.dtype;
}

/// Maximum rows of logits of this dtype at a time: enough for an efficient product at any
/// vocabulary, but small compared with the other activations. On a CPU, 512 rows of GPT-2's
/// vocabulary fit in fp32, and 1024 in bf16.
std::int64_t most_rows(const PlanSizes& sizes, std::int64_t vocabulary, DType dtype) {
  constexpr std::int64_t least = 64;
  const std::int64_t bytes =
      sizes.kind == device::Kind::cpu ? std::int64_t{104} << 20U : std::int64_t{2} << 30U;
  return std::max(bytes / static_cast<std::int64_t>(size_bytes(dtype)) / vocabulary, least);
}

/// Rows of parts of nearly equal size whose logits fit: whole sequences, or equal parts of one.
std::int64_t rows_of_parts(const PlanSizes& sizes, std::int64_t vocabulary) {
  constexpr std::int64_t even = 16;
  const std::int64_t T = sizes.context;
  const std::int64_t fitting = most_rows(sizes, vocabulary, logits_dtype(sizes));
  if (fitting >= T) {
    const std::int64_t most = fitting / T;
    const std::int64_t parts = divided_up(sizes.sequences, most);
    return divided_up(sizes.sequences, parts) * T;
  }
  const std::int64_t most = fitting / even * even;
  return std::min(T, rounded_up(divided_up(T, divided_up(T, most)), even));
}

/// Rows of chunks: as many parts as have gradients that fit, within a sequence where a part is.
std::int64_t rows_of_chunks(const PlanSizes& sizes, std::int64_t vocabulary, std::int64_t part) {
  const std::int64_t whole = part < sizes.context ? sizes.context : sizes.rows();
  return std::min(whole, most_rows(sizes, vocabulary, sizes.dtype) / part * part);
}

}  // namespace

std::int64_t rows_of_loss(std::int64_t loss_rows, std::int64_t rows, std::int64_t context) {
  return std::min(rows, loss_rows - (loss_rows > context ? loss_rows % context : 0));
}

Head::Head(Registry& registry, const HeadConfig& config, ParameterIndex shared)
    : config_(config),
      own_weight_(shared == absent),
      weight_(own_weight_ ? registry.add({.name = "head.weight",
                                          .shape = {config.vocabulary, config.channels}},
                                         {.deviation = config.deviation})
                          : shared) {}

void Head::plan(Planner& planner) {
  const PlanSizes& sizes = planner.sizes();
  logits_ = logits_dtype(sizes);
  const std::int64_t part = rows_of_parts(sizes, config_.vocabulary);
  chunk_rows_ = rows_of_chunks(sizes, config_.vocabulary, part);
  part_rows_ =
      rows_of_loss(config_.loss_rows > 0 ? config_.loss_rows : part, chunk_rows_, sizes.context);
  planner.set_logits(chunk_rows_, part_rows_, config_.vocabulary, logits_);
}

std::int64_t Head::rows_of_chunk(const BatchSize& size, std::int64_t begin) const {
  const std::int64_t end =
      chunk_rows_ < size.context ? (begin / size.context + 1) * size.context : size.rows();
  return std::min(chunk_rows_, end - begin);
}

LinearShape Head::shape(const BatchSize& size, std::int64_t rows) const {
  return {.rows = rows,
          .in = config_.channels,
          .out = config_.vocabulary,
          .dtype = size.dtype,
          .y = logits_};
}

void Head::prepare(Kernels& kernels, const BatchSize& size) {
  std::vector<Chunk>& chunks = chunks_.emplace_back();
  for (std::int64_t begin = 0, rows = 0; begin < size.rows(); begin += rows) {
    rows = rows_of_chunk(size, begin);
    Chunk& chunk = chunks.emplace_back(
        Chunk{{begin, rows, kernels.linear(shape(size, rows), !size.cache.given())}});
    const std::int64_t most = rows_of_loss(part_rows_, rows, size.context);
    for (std::int64_t at = 0; at < rows; at += most) {
      const std::int64_t n = std::min(most, rows - at);
      chunk.parts.push_back({begin + at, n, kernels.linear(shape(size, n), false)});
    }
  }
}

void Head::prepare_row(Kernels& kernels, DType dtype) {
  row_ = kernels.linear(shape({1, 1, dtype}, 1), false);
}

std::vector<ListedProduct> Head::products(const BatchSize& size) const {
  std::map<std::int64_t, std::int64_t> chunks;  // number of chunks, by rows
  for (std::int64_t begin = 0, rows = 0; begin < size.rows(); begin += rows) {
    rows = rows_of_chunk(size, begin);
    ++chunks[rows];
  }
  std::vector<ListedProduct> all;
  for (const auto& [rows, count] : chunks)
    all.push_back({.layer = "head", .products = shape(size, rows), .count = count, .logits = true});
  return all;
}

void Head::forward(const Call& call, const LinearProducts& products, View y, ConstView x) const {
  (*products.forward)({.a = x, .b = call.value(weight_), .c = y}, call.stream);
}

void Head::evaluate(const Call& call, ConstView x, ConstView targets, View losses) const {
  const device::Lease all_logits = call.lease(call.plan.scratch().logits);
  for (const Chunk& chunk : chunks_[call.size])
    for (const Part& part : chunk.parts) {
      const View logits = all_logits.view().slice(0, part.rows * config_.vocabulary);
      forward(call, part.products, logits, rows_of(x, part));
      run(ops::CrossEntropy{.losses = losses.slice(part.begin, part.rows),
                            .logits = logits,
                            .targets = targets.slice(part.begin, part.rows),
                            .terms = config_.terms},
          call.stream);
    }
}

void Head::train(const Call& call, ConstView x, ConstView targets, View losses, float scale) const {
  const device::Lease all_logits = call.lease(call.plan.scratch().logits);
  const device::Lease rounded = call.lease(call.plan.scratch().d_logits);
  const bool rounds = call.plan.scratch().d_logits.elements > 0;
  for (const Chunk& chunk : chunks_[call.size]) {
    const View d_logits =
        (rounds ? rounded : all_logits).view().slice(0, chunk.rows * config_.vocabulary);
    const View dx =
        call.narrow.slice(chunk.begin * config_.channels, chunk.rows * config_.channels);
    for (const Part& part : chunk.parts) {
      const View d_part = d_logits.slice((part.begin - chunk.begin) * config_.vocabulary,
                                         part.rows * config_.vocabulary);
      const View logits = rounds ? all_logits.view().slice(0, d_part.elements) : d_part;
      forward(call, part.products, logits, rows_of(x, part));
      run(ops::CrossEntropy{.losses = losses.slice(part.begin, part.rows),
                            .d_logits = d_part,
                            .logits = logits,
                            .targets = targets.slice(part.begin, part.rows),
                            .terms = config_.terms,
                            .scale = scale},
          call.stream);
    }
    (*chunk.products.weight_gradient)(
        {.a = d_logits, .b = rows_of(x, chunk), .c = call.gradient(weight_)}, call.stream);
    (*chunk.products.input_gradient)({.a = d_logits, .b = call.value(weight_), .c = dx},
                                     call.stream);
  }
  if (own_weight_)
    call.ready(weight_);
}

void Head::logits(const Call& call, ConstView x, View logits) const {
  for (const Chunk& chunk : chunks_[call.size])
    make_logits(call, chunk.products, rows_of(x, chunk),
                logits.slice(chunk.begin * config_.vocabulary, chunk.rows * config_.vocabulary));
}

void Head::make_logits(const Call& call,
                       const LinearProducts& products,
                       ConstView x,
                       View logits) const {
  if (logits_ == DType::f32) {
    forward(call, products, logits, x);
  } else {
    const device::Lease rounded = call.lease(call.plan.scratch().logits);
    const View made = rounded.view().slice(0, logits.elements);
    forward(call, products, made, x);
    run(ops::Cast{.to = logits, .from = made}, call.stream);
  }
  run(ops::CapLogits{.logits = logits, .terms = config_.terms}, call.stream);
}

}  // namespace trireme::nn
