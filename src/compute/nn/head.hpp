// SPDX-License-Identifier: Apache-2.0
// Where the residual stream ends: logits and loss. The weight is its own, or the token embedding's.
//
// The logits of all rows never exist at once: the head works on a chunk of rows at a time, whole
// sequences or equal parts of one, and in training takes loss, gradient of the logits, of its
// weight and of its input from each chunk before the next. A chunk is bounded in bytes, so that a
// vocabulary of 128k takes the memory of one of 50k, in fewer rows. They are fp32 on a CPU. A GPU
// keeps them in the activations' dtype, for the loss takes the time of reading and writing them,
// and takes larger chunks: it has the memory, and each chunk reads and writes the whole gradient of
// the head.
//
// Within a chunk logits are made and go into the loss in parts (HeadConfig::loss_rows): a GPU finds
// few rows in its cache, where the loss reads them and writes their gradient in their place.
//
// Logits, loss and gradient of the input of a row have the same bits in a chunk of any rows on a
// CPU (ops::rows_are_independent). The weight's gradient is added up chunk by
// chunk, so its rounding depends on where chunks end. That follows from vocabulary, context and,
// for short contexts, the most sequences at a time: never from threads, ranks or the batch at hand.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "nn/call.hpp"
#include "nn/kernels.hpp"
#include "nn/product_list.hpp"
#include "nn/registry.hpp"
#include "ops/cross_entropy.hpp"

namespace trireme::nn {

struct HeadConfig {
  std::int64_t channels = 0, vocabulary = 0;
  double deviation = 0;        ///< of the initial values of a weight of its own
  ops::LossTerms terms{};      ///< the cap holds for the logits that are given away as well
  std::int64_t loss_rows = 0;  ///< a part of a chunk; 0: all of it
};

/// Rows of a part of `rows` rows: `loss_rows`, or all where that is 0; of several sequences whole ones.
/// The last part may have fewer.
[[nodiscard]] std::int64_t rows_of_loss(std::int64_t loss_rows,
                                        std::int64_t rows,
                                        std::int64_t context);

class Head {
 public:
  /// `shared` is the weight of another layer, or `absent`: then head.weight is registered.
  Head(Registry& registry, const HeadConfig& config, ParameterIndex shared);

  void plan(Planner& planner);
  void prepare(Kernels& kernels, const BatchSize& size);
  /// For next_logits().
  void prepare_row(Kernels& kernels, DType dtype);
  /// Requires: plan().
  void list(ProductList& list) const;
  [[nodiscard]] double flops_per_token() const;

  /// Losses per token. x = [rows, channels], the final norm's output.
  void evaluate(const Call& call, ConstView x, ConstView targets, View losses) const;
  /// And the gradient of their mean, with the z-loss where there is one: added to the weight's, and
  /// into call.narrow that of x.
  void train(const Call& call, ConstView x, ConstView targets, View losses) const;
  /// Logits [rows, V] fp32, after the cap.
  void logits(const Call& call, ConstView x, View logits) const;
  /// Logits [V] fp32 of one row, after the cap.
  void next_logits(const Call& call, ConstView row, View logits) const;

 private:
  struct Part {
    std::int64_t begin = 0, rows = 0;
    const LinearProducts* products = nullptr;
  };
  struct Chunk : Part {
    std::vector<Part> parts{};  ///< for logits and loss
  };

  /// The rows of the chunk that begins at row `begin`.
  [[nodiscard]] std::int64_t chunk_rows(const BatchSize& size, std::int64_t begin) const;
  [[nodiscard]] LinearShape shape(const BatchSize& size, std::int64_t rows) const;
  [[nodiscard]] ConstView rows_of(ConstView x, const Part& part) const {
    return x.slice(part.begin * config_.channels, part.rows * config_.channels);
  }

  const HeadConfig config_;
  const bool own_weight_;
  ParameterIndex weight_;
  std::int64_t rows_at_a_time_ = 0;
  DType logits_ = DType::f32;
  std::vector<std::vector<Chunk>> chunks_;  // by batch size
  const LinearProducts* row_ = nullptr;
};

}  // namespace trireme::nn
