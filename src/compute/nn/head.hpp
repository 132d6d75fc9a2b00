// SPDX-License-Identifier: Apache-2.0
// The head, which ends the residual stream: logits and loss, with a weight of its own or the token
// embedding's.
//
// The logits of all rows never exist at once: the head works on a chunk of rows at a time, whole
// sequences or equal parts of one, and in training computes the loss and the gradients of logits,
// weight and input for each chunk before the next. A chunk is limited in bytes: a larger vocabulary
// means fewer rows. Logits are fp32 on a CPU. On a GPU they have the activations' dtype, because
// the loss is limited by memory traffic, and chunks are larger, because each one reads and writes
// the whole gradient of the weight.
//
// Within a chunk, logits and loss are computed in parts (HeadConfig::loss_rows), so that on a GPU
// the logits of a part can stay in its cache until the loss replaces them with their gradient. On a
// CPU, gradients in bf16 take half the memory of the logits, so a chunk has twice the rows of a
// part: the gradient of the weight is read and written half as often.
//
// On a CPU, logits, loss and input gradient of a row have the same bits in any chunk
// (ops/matmul.hpp). The rounding of the weight's gradient depends on the chunks: on vocabulary,
// context and, for short contexts, the maximum number of sequences; never on threads, ranks or the
// batch.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/call.hpp"
#include "nn/kernels.hpp"
#include "nn/registry.hpp"
#include "ops/cross_entropy.hpp"

namespace trireme::nn {

struct HeadConfig {
  std::int64_t channels = 0, vocabulary = 0;
  double deviation = 0;    ///< of the initial values of an own weight
  ops::LossTerms terms{};  ///< the cap also applies to returned logits
  /// Rows of a part of a chunk. 0: all; on a CPU in bf16, at most 104 MiB of fp32 logits.
  std::int64_t loss_rows = 0;
};

/// Rows of a part of a chunk of `rows` rows: `loss_rows` or all; whole sequences if there are
/// several. The last part may have fewer.
[[nodiscard]] std::int64_t rows_of_loss(std::int64_t loss_rows,
                                        std::int64_t rows,
                                        std::int64_t context);

class Head {
 public:
  /// `shared` is the weight of another layer; if `absent`, registers head.weight.
  Head(Registry& registry, const HeadConfig& config, ParameterIndex shared);

  void plan(Planner& planner);
  void prepare(Kernels& kernels, const BatchSize& size);
  /// For next_logits().
  void prepare_row(Kernels& kernels, DType dtype);
  /// Requires: plan().
  [[nodiscard]] std::vector<ListedProduct> products(const BatchSize& size) const;

  /// Losses per token. x = [rows, channels], the final norm's output.
  void evaluate(const Call& call, ConstView x, ConstView targets, View losses) const;
  /// Losses, and the gradient of `scale` times their sum (with z-loss, if any): adds that of the
  /// weight, and writes that of x to call.narrow.
  void train(const Call& call, ConstView x, ConstView targets, View losses, float scale) const;
  /// Logits [rows, V] fp32, after the cap.
  void logits(const Call& call, ConstView x, View logits) const;
  /// Logits [V] fp32 of one row, after the cap.
  void next_logits(const Call& call, ConstView row, View logits) const {
    make_logits(call, row_, row, logits);
  }

 private:
  struct Part {
    std::int64_t begin = 0, rows = 0;
    LinearProducts products{};
  };
  struct Chunk : Part {
    std::vector<Part> parts{};  ///< for logits and loss
  };

  [[nodiscard]] std::int64_t rows_of_chunk(const BatchSize& size, std::int64_t begin) const;
  [[nodiscard]] LinearShape shape(const BatchSize& size, std::int64_t rows) const;
  [[nodiscard]] ConstView rows_of(ConstView x, const Part& part) const {
    return x.slice(part.begin * config_.channels, part.rows * config_.channels);
  }
  void forward(const Call& call, const LinearProducts& products, View y, ConstView x) const;
  void make_logits(const Call& call,
                   const LinearProducts& products,
                   ConstView x,
                   View logits) const;

  const HeadConfig config_;
  const bool own_weight_;
  ParameterIndex weight_;
  std::int64_t chunk_rows_ = 0, part_rows_ = 0;  // maximums
  DType logits_ = DType::f32;
  std::vector<std::vector<Chunk>> chunks_;  // by batch size
  LinearProducts row_;
};

}  // namespace trireme::nn
