// SPDX-License-Identifier: Apache-2.0
// What the model keeps between forward and backward, laid into one buffer and handed out as views;
// and what it needs only for a while, which it leases from a scratch pool. Both are planned once,
// for the largest batch.
//
// recompute: block keeps one block's activations, which all blocks share, and each block's input;
// recompute: gelu keeps no GELU output, which passes through `wide`.
//
// The plan is plain arithmetic (no device). Items of the buffer lie one after another, each at a
// multiple of 128 bytes. A scratch item is leased with its planned size whatever the batch, so that
// the pool's blocks have their final size after the first step.
//
// The residual stream has the dtype of the activations, also in bf16: half the memory traffic, and
// the sums that matter (layer norm statistics, matrix products, weight gradients, loss) are fp32
// whatever is stored. The logits exist for a chunk of rows at a time, in fp32 on a CPU. A GPU keeps
// them in the activations' dtype, for the loss takes the time of reading and writing them, and
// takes larger chunks: it has the memory, and each chunk reads and writes the whole gradient of the
// head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/view.hpp"

#include "device/buffer.hpp"
#include "device/device.hpp"

#include "model/config.hpp"

namespace trireme::model {

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

  /// R = B·T rows, C channels, V vocabulary.
  struct Scratch {
    Item logits;    ///< [rows, V], rows <= head_rows; in training, their gradient afterwards
    Item d_logits;  ///< that gradient where fp32 logits have one of bf16
    Item narrow;    ///< [R, C] forward: what a branch adds; backward: a gradient inside a branch
    Item wide;      ///< [R, 4C] the gradient of fc or qkv; a GELU output that is not kept
    Item dx;        ///< [R, C] the gradient of the residual stream
    Item d_branch;  ///< [R, C] dx behind dropout

    [[nodiscard]] std::size_t bytes() const {
      return logits.bytes() + d_logits.bytes() + narrow.bytes() + wide.bytes() + dx.bytes() +
             d_branch.bytes();
    }
  };

  /// For batches of up to `micro_sequences` rows.
  ActivationPlan(const GptShape& shape,
                 DType dtype,
                 std::int64_t micro_sequences,
                 device::Kind kind);

  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  /// Of the buffer.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const Scratch& scratch() const { return scratch_; }
  /// The most rows of logits that exist at a time.
  [[nodiscard]] std::int64_t head_rows() const { return head_rows_; }
  /// The rows of the head's chunk that begins at row `begin` of `rows`: whole sequences, or a part
  /// of one.
  [[nodiscard]] std::int64_t head_rows(std::int64_t begin, std::int64_t rows) const;
  /// In which pieces a linear layer takes `rows` rows: sequence by sequence.
  [[nodiscard]] std::int64_t piece_rows(std::int64_t rows) const;

 private:
  std::vector<Item> items_;
  Scratch scratch_;
  std::size_t bytes_ = 0;
  std::int64_t context_ = 0;
  std::int64_t head_rows_ = 0;
};

/// One block. R = B·T rows.
struct BlockActivations {
  View x;                       ///< [R, C] the residual stream that enters
  View mean_1, rstd_1, norm_1;  ///< [R], [R] fp32, [R, C]
  View qkv;                     ///< [R, 3C]
  View attention, lse;          ///< [R, C]; [B, H, T] fp32
  View x_middle;                ///< [R, C] the residual stream between attention and MLP
  View mean_2, rstd_2, norm_2;  ///< as above
  View fc, gelu;                ///< [R, 4C] before and after the GELU; gelu empty: not kept
};

struct Activations {
  std::vector<BlockActivations> blocks;
  View x_last;  ///< [R, C] the residual stream that leaves the last block
  View mean_f, rstd_f, norm_f;
  View tokens;  ///< [T] int32 the padded window of next_logits
};

/// The views into `buffer` for batches of `batch` rows, at most the plan's micro_sequences.
Activations view_activations(const GptShape& shape,
                             DType dtype,
                             std::int64_t batch,
                             const ActivationPlan& plan,
                             const device::Buffer& buffer);

}  // namespace trireme::model
