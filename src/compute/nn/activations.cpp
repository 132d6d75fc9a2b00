// SPDX-License-Identifier: Apache-2.0
#include "nn/activations.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

namespace trireme::nn {
namespace {

/// Alignment in bytes: a pair of cache lines.
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
  TRIREME_EXPECT(l == block_ + 1 && (l < 2 || next_ == in_blocks_.size()),
                 "block {} is planned after block {}", l, block_);
  block_ = l;
  next_ = 0;
}

Slot Planner::retain(Retention how, const std::string& name, std::int64_t elements) {
  return retain(how, name, elements, sizes_.dtype);
}

Slot Planner::retain(Retention how, const std::string& name, std::int64_t elements, DType dtype) {
  Slot slot{.dtype = dtype, .elements = elements * sizes_.context};
  if (block_ != none)
    return retain_in_block(how, name, slot);
  TRIREME_EXPECT(how == Retention::stream, "{} is not part of a block", name);
  slot.offset = place(name, dtype, slot.elements * sizes_.sequences);
  slot.evaluation_offset = slot.offset;
  return slot;
}

Slot Planner::retain_in_block(Retention how, const std::string& name, Slot slot) {
  InBlocks& item = next_in_block(name, slot);
  const Recompute recompute = sizes_.recompute.of(block_);
  if (how == Retention::cheap && recompute == Recompute::gelu) {
    slot.elements = 0;
    return slot;
  }
  const bool shared = how != Retention::stream && recompute == Recompute::block;
  if (shared && item.shared) {
    slot.offset = *item.shared;
  } else {
    slot.offset = place(shared ? "block." + name : fmt::format("h.{}.{}", block_, name), slot.dtype,
                        slot.elements * sizes_.sequences);
    if (shared)
      item.shared = slot.offset;
  }
  if (!item.first)
    item.first = slot.offset;
  slot.evaluation_offset = *item.first;
  return slot;
}

Planner::InBlocks& Planner::next_in_block(const std::string& name, const Slot& slot) {
  if (block_ == 0)
    in_blocks_.push_back(
        {.dtype = slot.dtype, .elements = slot.elements, .first = {}, .shared = {}});
  TRIREME_EXPECT(next_ < in_blocks_.size(), "block {} retains more than block 0: {}", block_, name);
  InBlocks& item = in_blocks_[next_++];
  TRIREME_EXPECT(item.elements == slot.elements && item.dtype == slot.dtype,
                 "block {} retains {} elements as {}, block 0 {}", block_, slot.elements, name,
                 item.elements);
  return item;
}

Slot Planner::retain_always(const std::string& name, std::int64_t elements, DType dtype) {
  Slot slot{.dtype = dtype, .elements = elements};
  const std::string block = block_ == none ? "" : fmt::format("h.{}.", block_);
  slot.offset = slot.evaluation_offset = place(block + name, dtype, elements);
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

void Planner::set_logits(std::int64_t chunk,
                         std::int64_t part,
                         std::int64_t vocabulary,
                         DType dtype) {
  plan_.head_rows_ = chunk;
  plan_.loss_rows_ = part;
  const bool rounds = dtype != sizes_.dtype;
  const auto logits_of = [&](std::int64_t rows) {
    return std::min(sizes_.rows(), rows) * vocabulary;
  };
  plan_.scratch_.logits.dtype = dtype;
  plan_.scratch_.logits.elements = logits_of(rounds ? part : chunk);
  plan_.scratch_.d_logits.elements = rounds ? logits_of(chunk) : 0;
}

}  // namespace trireme::nn
