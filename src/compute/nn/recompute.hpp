// SPDX-License-Identifier: Apache-2.0
// What forward drops and backward computes again, to the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/key.hpp"

namespace trireme::nn {

/// none: everything is kept; gelu: all but the outputs of activation functions, a quarter of it;
/// block: only what enters the block.
enum class Recompute : std::uint8_t { none, gelu, block };

}  // namespace trireme::nn

template <>
struct trireme::EnumNames<trireme::nn::Recompute> {
  using enum nn::Recompute;
  static constexpr std::pair<nn::Recompute, const char*> table[] = {
      {none, "none"}, {gelu, "gelu"}, {block, "block"}};
};

namespace trireme::nn {

/// As a deck has it.
using RecomputeKey = WordsOrBytes<Recompute>;

/// The same without memory of its own, as shapes are: one word for all blocks, or one for each; or
/// the bytes that are to decide on them (model/recompute_choice.hpp).
class RecomputeOfBlocks {
 public:
  static constexpr std::size_t most_blocks = 1000;

  RecomputeOfBlocks(Recompute all = Recompute::none) {  // NOLINT(google-explicit-constructor)
    words_.front() = all;
  }
  explicit RecomputeOfBlocks(Bytes limit) : limit_(limit) {}
  /// Of a longer list, which no model has, the first words.
  explicit RecomputeOfBlocks(const std::vector<Recompute>& each)
      : count_(std::min(each.size(), most_blocks)) {
    std::copy_n(each.begin(), count_, words_.begin());
  }
  explicit RecomputeOfBlocks(const RecomputeKey& key)
      : RecomputeOfBlocks(key.limit() != nullptr  ? RecomputeOfBlocks(*key.limit())
                          : key.list() != nullptr ? RecomputeOfBlocks(*key.list())
                                                  : RecomputeOfBlocks(key.of(0))) {}

  [[nodiscard]] const Bytes* limit() const { return limit_.count > 0 ? &limit_ : nullptr; }
  /// Empty where one word is for all, and with a limit.
  [[nodiscard]] std::span<const Recompute> list() const { return std::span(words_).first(count_); }
  /// Requires: no limit, and a list has a word for it.
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
