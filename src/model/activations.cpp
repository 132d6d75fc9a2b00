// SPDX-License-Identifier: Apache-2.0
#include "model/activations.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme::model {
namespace {

/// As buffers are aligned: a pair of cache lines.
constexpr std::size_t alignment = 128;

DType logits_dtype(DType dtype, device::Kind kind) {
  return kind == device::Kind::cpu ? DType::f32 : dtype;
}

/// So many logits exist at a time: enough rows for an efficient product at any vocabulary, little
/// beside the other activations.
std::int64_t most_logits(DType dtype, device::Kind kind) {
  const std::int64_t bytes =
      kind == device::Kind::cpu ? std::int64_t{128} << 20U : std::int64_t{2} << 30U;
  return bytes / static_cast<std::int64_t>(size_bytes(logits_dtype(dtype, kind)));
}

/// Whole sequences, in chunks as equal as can be, or equal parts of one.
std::int64_t rows_of_logits(const GptShape& shape, std::int64_t rows, std::int64_t most_logits) {
  constexpr std::int64_t even = 64;
  const std::int64_t T = shape.context;
  const std::int64_t fitting = std::max(most_logits / shape.vocabulary, even);
  if (fitting >= T) {
    const std::int64_t sequences = rows / T, most = fitting / T;
    const std::int64_t chunks = (sequences + most - 1) / most;
    return (sequences + chunks - 1) / chunks * T;
  }
  const std::int64_t parts = (T + fitting - 1) / fitting;
  return std::min(T, ((T + parts - 1) / parts + even - 1) / even * even);
}

/// Names every item, in one order, for the plan and for the views alike.
/// `take(name, dtype, elements)` gives the view.
template <class Take>
Activations lay_out(const GptShape& shape, DType dtype, std::int64_t B, Take take) {
  const std::int64_t rows = B * shape.context, C = shape.channels;
  Activations all;
  all.blocks.resize(static_cast<std::size_t>(shape.layers));
  for (std::size_t l = 0; l < all.blocks.size(); ++l) {
    const bool shared = shape.recompute == Recompute::block;
    BlockActivations& b = all.blocks[l];
    if (shared && l > 0)
      b = all.blocks.front();
    b.x = take(fmt::format("h.{}.x", l), dtype, rows * C);
    if (shared && l > 0)
      continue;
    const std::string h = shared ? "block." : fmt::format("h.{}.", l);
    b.mean_1 = take(h + "ln_1.mean", DType::f32, rows);
    b.rstd_1 = take(h + "ln_1.rstd", DType::f32, rows);
    b.norm_1 = take(h + "ln_1", dtype, rows * C);
    b.qkv = take(h + "qkv", dtype, 3 * rows * C);
    b.attention = take(h + "attention", dtype, rows * C);
    b.lse = take(h + "attention.lse", DType::f32, rows * shape.heads);
    b.x_middle = take(h + "x_middle", dtype, rows * C);
    b.mean_2 = take(h + "ln_2.mean", DType::f32, rows);
    b.rstd_2 = take(h + "ln_2.rstd", DType::f32, rows);
    b.norm_2 = take(h + "ln_2", dtype, rows * C);
    b.fc = take(h + "fc", dtype, 4 * rows * C);
    if (shape.recompute != Recompute::gelu)
      b.gelu = take(h + "gelu", dtype, 4 * rows * C);
  }
  all.x_last = take("x_last", dtype, rows * C);
  all.mean_f = take("ln_f.mean", DType::f32, rows);
  all.rstd_f = take("ln_f.rstd", DType::f32, rows);
  all.norm_f = take("ln_f", dtype, rows * C);
  all.tokens = take("tokens", DType::i32, shape.context);
  return all;
}

}  // namespace

ActivationPlan::ActivationPlan(const GptShape& shape,
                               DType dtype,
                               std::int64_t micro_sequences,
                               device::Kind kind)
    : context_(shape.context),
      head_rows_(rows_of_logits(shape, micro_sequences * shape.context, most_logits(dtype, kind))) {
  lay_out(shape, dtype, micro_sequences, [&](std::string name, DType type, std::int64_t elements) {
    items_.push_back({std::move(name), type, elements, bytes_});
    bytes_ += (items_.back().bytes() + alignment - 1) / alignment * alignment;
    return View();
  });
  const std::int64_t rows = micro_sequences * shape.context, C = shape.channels;
  const std::int64_t logits = std::min(rows, head_rows_) * shape.vocabulary;
  const DType logits_type = logits_dtype(dtype, kind);
  scratch_ = {.logits = {"logits", logits_type, logits},
              .d_logits = {"logits.gradient", dtype, dtype == logits_type ? 0 : logits},
              .narrow = {"narrow", dtype, rows * C},
              .wide = {"wide", dtype, 4 * rows * C},
              .dx = {"x.gradient", dtype, rows * C},
              .d_branch = {"branch.gradient", dtype, shape.dropout > 0 ? rows * C : 0}};
}

std::int64_t ActivationPlan::head_rows(std::int64_t begin, std::int64_t rows) const {
  const std::int64_t end = head_rows_ < context_ ? (begin / context_ + 1) * context_ : rows;
  return std::min(head_rows_, end - begin);
}

std::int64_t ActivationPlan::piece_rows(std::int64_t rows) const {
  return std::min(rows, context_);
}

Activations view_activations(const GptShape& shape,
                             DType dtype,
                             std::int64_t batch,
                             const ActivationPlan& plan,
                             const device::Buffer& buffer) {
  std::size_t next = 0;
  return lay_out(shape, dtype, batch,
                 [&](const std::string& name, DType type, std::int64_t elements) {
                   const ActivationPlan::Item& item = plan.items()[next++];
                   TRIREME_ASSERT(item.name == name && elements <= item.elements,
                                  "{} elements of '{}' where {} of '{}' were planned", elements,
                                  name, item.elements, item.name);
                   return buffer.view(type, item.offset, elements);
                 });
}

}  // namespace trireme::model
