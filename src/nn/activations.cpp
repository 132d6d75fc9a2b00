// SPDX-License-Identifier: Apache-2.0
#include "nn/activations.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

namespace trireme::nn {
namespace {

/// As buffers are aligned: a pair of cache lines.
constexpr std::size_t alignment = 128;

}  // namespace

Planner::Planner(const PlanSizes& sizes) : sizes_(sizes) {
  const auto empty = [&](const char* name) {
    return ActivationPlan::Item{.name = name, .dtype = sizes.dtype};
  };
  plan_.scratch_ = {.logits = empty("logits"),
                    .d_logits = empty("logits.gradient"),
                    .narrow = empty("narrow"),
                    .wide = empty("wide"),
                    .dx = empty("x.gradient"),
                    .d_branch = empty("branch.gradient")};
}

void Planner::begin_block(std::size_t l) {
  TRIREME_EXPECT(l == block_ + 1 && (l < 2 || next_ == first_block_.size()),
                 "block {} is planned after block {}", l, block_);
  block_ = l;
  next_ = 0;
}

Slot Planner::keep(Keep how, const std::string& name, std::int64_t elements) {
  return keep(how, name, elements, sizes_.dtype);
}

Slot Planner::keep(Keep how, const std::string& name, std::int64_t elements, DType dtype) {
  Slot slot{.dtype = dtype, .elements = elements * sizes_.context};
  if (how == Keep::cheap && sizes_.recompute == Recompute::gelu)
    slot.elements = 0;
  const bool shared = how != Keep::stream && sizes_.recompute == Recompute::block;
  const bool later = block_ != none && block_ > 0;
  if (later) {
    TRIREME_EXPECT(next_ < first_block_.size(), "block {} keeps more than block 0: {}", block_,
                   name);
    const Slot& first = first_block_[next_++];
    TRIREME_EXPECT(first.elements == slot.elements && first.dtype == dtype,
                   "block {} keeps {} elements as {}, block 0 {}", block_, slot.elements, name,
                   first.elements);
    if (shared || slot.elements == 0)
      return first;
    slot.evaluation_offset = first.offset;
  }
  if (slot.elements > 0) {
    const std::string block = shared           ? "block."
                              : block_ == none ? ""
                                               : fmt::format("h.{}.", block_);
    slot.offset = place(block + name, dtype, slot.elements * sizes_.sequences);
  }
  if (!later)
    slot.evaluation_offset = slot.offset;
  if (block_ == 0)
    first_block_.push_back(slot);
  return slot;
}

Slot Planner::keep_one_sequence(const std::string& name, std::int64_t elements, DType dtype) {
  Slot slot{.dtype = dtype, .elements = elements * sizes_.context};
  slot.offset = slot.evaluation_offset = place(name, dtype, slot.elements);
  return slot;
}

Slot Planner::keep_always(const std::string& name, std::int64_t elements) {
  Slot slot{.dtype = DType::f32, .elements = elements};
  const std::string block = block_ == none ? "" : fmt::format("h.{}.", block_);
  slot.offset = slot.evaluation_offset = place(block + name, DType::f32, elements);
  return slot;
}

std::size_t Planner::place(std::string name, DType dtype, std::int64_t elements) {
  const std::size_t offset = plan_.bytes_;
  plan_.items_.push_back({std::move(name), dtype, elements, offset});
  plan_.bytes_ += (plan_.items_.back().bytes() + alignment - 1) / alignment * alignment;
  return offset;
}

void Planner::need(ActivationPlan::Item ActivationPlan::Scratch::*which, std::int64_t elements) {
  ActivationPlan::Item& item = plan_.scratch_.*which;
  item.elements = std::max(item.elements, elements * sizes_.rows());
}

void Planner::set_logits(std::int64_t rows, std::int64_t vocabulary, DType dtype) {
  plan_.head_rows_ = rows;
  plan_.scratch_.logits.dtype = dtype;
  plan_.scratch_.logits.elements = std::min(sizes_.rows(), rows) * vocabulary;
  plan_.scratch_.d_logits.elements = dtype == sizes_.dtype ? 0 : plan_.scratch_.logits.elements;
}

}  // namespace trireme::nn
