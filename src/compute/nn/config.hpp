// SPDX-License-Identifier: Apache-2.0
// What can be chosen about layers: activation functions, norms of queries and keys, and which
// activations backward recomputes, with the same bits, instead of retaining them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/key.hpp"

namespace trireme::nn {

/// Between the layers of an MLP. gelu: tanh form; squared_relu: max(0, x)²; swiglu: silu(gate) · up,
/// from twice the channels.
enum class Activation : std::uint8_t { gelu, squared_relu, swiglu };

/// Whether attention normalizes its queries and keys (nn/head_norm.hpp).
enum class QkNorm : std::uint8_t { none, without_gain, with_gain };

/// none: retain everything; gelu: recompute outputs of activation functions, a quarter of the
/// memory; block: retain only the input of the block.
enum class Recompute : std::uint8_t { none, gelu, block };

/// The value of the deck key.
using RecomputeKey = WordsOrBytes<Recompute>;

/// The same without heap memory, for shapes: one word for all blocks, one word per block, or a
/// limit in bytes that will decide (model/recompute_choice.hpp).
class RecomputeOfBlocks {
 public:
  static constexpr std::size_t most_blocks = 1000;

  RecomputeOfBlocks(Recompute all = Recompute::none) {  // NOLINT(google-explicit-constructor)
    words_.front() = all;
  }
  explicit RecomputeOfBlocks(Bytes limit) : limit_(limit) {}
  /// Truncates a list of more than most_blocks words.
  explicit RecomputeOfBlocks(const std::vector<Recompute>& each)
      : count_(std::min(each.size(), most_blocks)) {
    std::copy_n(each.begin(), count_, words_.begin());
  }
  explicit RecomputeOfBlocks(const RecomputeKey& key)
      : RecomputeOfBlocks(key.limit() != nullptr  ? RecomputeOfBlocks(*key.limit())
                          : key.list() != nullptr ? RecomputeOfBlocks(*key.list())
                                                  : RecomputeOfBlocks(key.of(0))) {}

  [[nodiscard]] const Bytes* limit() const { return limit_.count > 0 ? &limit_ : nullptr; }
  /// Empty with one word for all blocks, and with a limit.
  [[nodiscard]] std::span<const Recompute> list() const { return std::span(words_).first(count_); }
  /// Requires: no limit; a list has a word for `block`.
  [[nodiscard]] Recompute of(std::size_t block) const {
    return count_ == 0 ? words_.front() : list()[block];
  }
  [[nodiscard]] RecomputeKey key() const {
    if (limit() != nullptr)
      return RecomputeKey(limit_);
    return count_ == 0 ? RecomputeKey(of(0))
                       : RecomputeKey(std::vector(list().begin(), list().end()));
  }
  bool operator==(const RecomputeOfBlocks&) const = default;

 private:
  std::array<Recompute, most_blocks> words_{};
  std::size_t count_ = 0;
  Bytes limit_{};
};

}  // namespace trireme::nn
