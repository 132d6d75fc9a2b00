// SPDX-License-Identifier: Apache-2.0
// Plans the memory of a model: activations retained between forward and backward in one buffer, and
// temporary tensors from a scratch pool, both for the largest batch. Each layer requests its
// activations from a Planner and gets Slots, which a Call (call.hpp) converts to views.
//
// A plan needs no device. Items are at multiples of 128 bytes in the buffer. A scratch item always
// has its planned size, so the pool's blocks have their final size after the first step.
//
// 1. All blocks request the same items in the same order. Of blocks with recompute: block only the
//    input is retained; their other items share the memory of one block. With recompute: gelu,
//    `cheap` items are dropped.
// 2. Evaluation needs nothing of earlier blocks: all blocks use the items of the first block that
//    retains them.
// 3. The residual stream has the dtype of the activations, also bf16, which halves memory traffic.
//    Norm statistics, matrix products, weight gradients and the loss are summed in fp32.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "device/device.hpp"

#include "nn/config.hpp"

namespace trireme::nn {

/// Size of the cache of keys and values for generating text.
struct CacheSize {
  std::int64_t sequences = 0;  ///< 0: no cache
  std::int64_t positions = 0;  ///< of each sequence

  [[nodiscard]] bool given() const { return sequences > 0; }
};

/// How long an activation is needed.
enum class Retention : std::uint8_t {
  stream,  ///< input of a block: always retained, for each block
  block,   ///< inside a block: for each block, or shared if recomputed
  cheap    ///< as `block`, and one pass over memory recomputes it
};

/// A retained tensor. 0 elements: dropped, backward recomputes it.
struct Slot {
  DType dtype = DType::f32;
  std::int64_t elements = 0;          ///< of one sequence
  std::size_t offset = 0;             ///< bytes from the start of the buffer
  std::size_t evaluation_offset = 0;  ///< the same in evaluation
};

class ActivationPlan {
 public:
  struct Item {
    std::string name;  ///< "h.3.qkv", "logits"
    DType dtype = DType::f32;
    std::int64_t elements = 0;  ///< 0 in scratch: not needed by this model
    std::size_t offset = 0;     ///< bytes from the start of the buffer; 0 in scratch

    [[nodiscard]] std::size_t bytes() const {
      return static_cast<std::size_t>(elements) * size_bytes(dtype);
    }
  };

  /// R = rows of the batch, C = channels of the residual stream, V = vocabulary.
  struct Scratch {
    Item logits;    ///< [head_rows, V], then their gradient; of fp32 for bf16 [loss_rows, V]
    Item d_logits;  ///< [head_rows, V] bf16 gradient of fp32 logits
    Item narrow;    ///< [R, C or wider] output of a branch; in backward its or its input's gradient
    Item wide;      ///< the widest tensor inside a branch: a gradient, or a recomputed item
    Item dx;        ///< [R, C] the gradient of the residual stream
    Item d_branch;  ///< [R, C] dx after dropout

    [[nodiscard]] std::size_t bytes() const {
      return logits.bytes() + d_logits.bytes() + narrow.bytes() + wide.bytes() + dx.bytes() +
             d_branch.bytes();
    }
  };

  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< size of the buffer
  [[nodiscard]] const Scratch& scratch() const { return scratch_; }
  /// Maximum rows whose gradients of logits exist at a time (head.hpp).
  [[nodiscard]] std::int64_t head_rows() const { return head_rows_; }
  /// Maximum rows for which logits and loss are computed at a time: head_rows() or less.
  [[nodiscard]] std::int64_t loss_rows() const { return loss_rows_; }

 private:
  friend class Planner;
  std::vector<Item> items_;
  Scratch scratch_;
  std::size_t bytes_ = 0;
  std::int64_t head_rows_ = 0, loss_rows_ = 0;
};

struct PlanSizes {
  DType dtype = DType::f32;    ///< of the activations
  std::int64_t sequences = 0;  ///< the largest batch
  std::int64_t context = 0;    ///< tokens of a sequence
  device::Kind kind = device::Kind::cpu;
  RecomputeKey recompute = Recompute::none;
  /// With a cache, `context` is 1 and a row of a batch is a single position of a cached sequence.
  CacheSize cache{};

  [[nodiscard]] std::int64_t rows() const { return sequences * context; }
};

class Planner {
 public:
  explicit Planner(const PlanSizes& sizes);

  [[nodiscard]] const PlanSizes& sizes() const { return sizes_; }

  /// The following requests belong to block `l`; blocks are planned in order.
  void begin_block(std::size_t l);
  void end_blocks() { block_ = none; }

  /// `elements` per token, in the activations' dtype or another.
  Slot retain(Retention how, const std::string& name, std::int64_t elements);
  Slot retain(Retention how, const std::string& name, std::int64_t elements, DType dtype);
  /// `elements` in total, whatever the batch; the contents persist between calls.
  Slot retain_always(const std::string& name, std::int64_t elements, DType dtype = DType::f32);

  /// Requires at least `elements` per token of scratch.
  void need(ActivationPlan::Item ActivationPlan::Scratch::*which, std::int64_t elements);
  void set_logits(std::int64_t chunk, std::int64_t part, std::int64_t vocabulary, DType dtype);

  ActivationPlan finish() { return std::move(plan_); }  ///< after all requests

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// The items with one name in all blocks.
  struct InBlocks {
    DType dtype = DType::f32;
    std::int64_t elements = 0;          // of one sequence
    std::optional<std::size_t> first;   // offset in the first block that retains it
    std::optional<std::size_t> shared;  // offset shared by recomputed blocks
  };

  Slot retain_in_block(Retention how, const std::string& name, Slot slot);
  InBlocks& next_in_block(const std::string& name, const Slot& slot);
  std::size_t place(std::string name, DType dtype, std::int64_t elements);

  const PlanSizes sizes_;
  ActivationPlan plan_;
  std::size_t block_ = none;
  std::vector<InBlocks> in_blocks_;  // as block 0 named them
  std::size_t next_ = 0;             // index in in_blocks_
};

}  // namespace trireme::nn
