// SPDX-License-Identifier: Apache-2.0
// What layers keep between forward and backward, laid into one buffer; and what they need only for
// a while, which is leased from a scratch pool. Both are planned once, for the largest batch: each
// layer names to a Planner what it keeps, and gets Slots, which a Call (call.hpp) turns into views.
//
// A plan is plain arithmetic (no device). Items of the buffer lie one after another, each at a
// multiple of 128 bytes. A scratch item is leased with its planned size whatever the batch, so that
// the pool's blocks have their final size after the first step.
//
// 1. All blocks name the same items, in the same order. Of those with recompute: block what enters
//    each is kept, and the rest has one place, which they share; with recompute: gelu what is
//    `cheap` is dropped.
// 2. In evaluation nothing of a block is needed once it is left: each item is where the first block
//    that keeps it has it.
// 3. The residual stream has the dtype of the activations, also in bf16: half the memory traffic,
//    and the sums that matter (norm statistics, matrix products, weight gradients, loss) are fp32
//    whatever is stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "device/device.hpp"

#include "nn/recompute.hpp"

namespace trireme::nn {

/// Of sequences whose keys and values are kept from call to call, while text is generated.
struct CacheSize {
  std::int64_t sequences = 0;  ///< 0: nothing is kept
  std::int64_t positions = 0;  ///< of each

  [[nodiscard]] bool given() const { return sequences > 0; }
};

/// How long a kept item must last.
enum class Keep : std::uint8_t {
  stream,  ///< what enters a block: always, for each block
  block,   ///< inside of a block: for each block, or for one at a time
  cheap    ///< as `block`, and one pass over memory computes it again
};

/// A kept tensor. Without elements: dropped, backward computes it again.
struct Slot {
  DType dtype = DType::f32;
  std::int64_t elements = 0;          ///< of one sequence
  std::size_t offset = 0;             ///< bytes from the start of the buffer
  std::size_t evaluation_offset = 0;  ///< the same where nothing is kept for backward
};

class ActivationPlan {
 public:
  struct Item {
    std::string name;  ///< "h.3.qkv", "logits"
    DType dtype = DType::f32;
    std::int64_t elements = 0;  ///< 0 in scratch: this model does not need it
    std::size_t offset = 0;     ///< bytes from the start of the buffer; 0 in scratch

    [[nodiscard]] std::size_t bytes() const {
      return static_cast<std::size_t>(elements) * size_bytes(dtype);
    }
  };

  /// R = rows of the batch, C = channels of the residual stream, V = vocabulary.
  struct Scratch {
    Item logits;    ///< [rows, V], rows <= head_rows; in training, their gradient afterwards
    Item d_logits;  ///< that gradient where fp32 logits have one of bf16
    /// [R, C or wider] forward: what a branch adds; backward: a gradient that enters or leaves one
    Item narrow;
    Item wide;      ///< the widest tensor inside of any branch: a gradient, or what was dropped
    Item dx;        ///< [R, C] the gradient of the residual stream
    Item d_branch;  ///< [R, C] dx after dropout

    [[nodiscard]] std::size_t bytes() const {
      return logits.bytes() + d_logits.bytes() + narrow.bytes() + wide.bytes() + dx.bytes() +
             d_branch.bytes();
    }
  };

  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  /// Of the buffer.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const Scratch& scratch() const { return scratch_; }
  /// The most rows of logits that exist at a time (head.hpp).
  [[nodiscard]] std::int64_t head_rows() const { return head_rows_; }

 private:
  friend class Planner;
  std::vector<Item> items_;
  Scratch scratch_;
  std::size_t bytes_ = 0;
  std::int64_t head_rows_ = 0;
};

/// What a plan is made for.
struct PlanSizes {
  DType dtype = DType::f32;    ///< of the activations
  std::int64_t sequences = 0;  ///< the largest batch
  std::int64_t context = 0;    ///< tokens of a sequence
  device::Kind kind = device::Kind::cpu;
  RecomputeOfBlocks recompute = Recompute::none;
  /// With a cache, `context` is 1 and a row of a batch is a single position of a cached sequence.
  CacheSize cache{};

  [[nodiscard]] std::int64_t rows() const { return sequences * context; }
};

class Planner {
 public:
  explicit Planner(const PlanSizes& sizes);

  [[nodiscard]] const PlanSizes& sizes() const { return sizes_; }

  /// What follows belongs to block `l`; blocks are planned in order.
  void begin_block(std::size_t l);
  void end_blocks() { block_ = none; }

  /// `elements` for each token, in the activations' dtype or another.
  Slot keep(Keep how, const std::string& name, std::int64_t elements);
  Slot keep(Keep how, const std::string& name, std::int64_t elements, DType dtype);
  /// For one sequence, whatever the batch.
  Slot keep_one_sequence(const std::string& name, std::int64_t elements, DType dtype);

  /// So many elements of fp32 in all, whatever the batch: what lasts from call to call.
  Slot keep_always(const std::string& name, std::int64_t elements);

  /// At least so many elements for each token.
  void need(ActivationPlan::Item ActivationPlan::Scratch::*which, std::int64_t elements);
  void set_logits(std::int64_t rows, std::int64_t vocabulary, DType dtype);

  /// The plan, after all layers have planned.
  ActivationPlan finish() { return std::move(plan_); }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// What the blocks have under one name, each.
  struct InBlocks {
    DType dtype = DType::f32;
    std::int64_t elements = 0;          // of one sequence
    std::optional<std::size_t> first;   // offset where a block first keeps it
    std::optional<std::size_t> shared;  // offset for the blocks that share it
  };

  Slot keep_in_block(Keep how, const std::string& name, Slot slot);
  InBlocks& next_in_block(const std::string& name, const Slot& slot);
  std::size_t place(std::string name, DType dtype, std::int64_t elements);

  const PlanSizes sizes_;
  ActivationPlan plan_;
  std::size_t block_ = none;
  std::vector<InBlocks> in_blocks_;  // as block 0 named them
  std::size_t next_ = 0;             // of them
};

}  // namespace trireme::nn
