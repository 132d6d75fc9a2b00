// SPDX-License-Identifier: Apache-2.0
// The order in which an epoch visits its samples: a pseudo-random permutation of [0, size) that is
// computed, not stored, so that it costs nothing for any size and every rank can ask for any place.
//
// A Feistel network over the smallest power of two that holds `size` is a bijection whatever its
// round function is; places that fall outside are sent through again until they land inside (cycle
// walking), which keeps the bijection. The round function is Philox under (seed, sample_order),
// with the epoch in the counter. Sources: Luby and Rackoff 1988; Black and Rogaway, "Ciphers with
// arbitrary finite domains", CT-RSA 2002, for cycle walking.
//
// 1. For every (seed, epoch), place -> operator()(epoch, place) is a bijection of [0, size).
// 2. The numbers are persistent: a resumed run relies on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/random.hpp"

namespace trireme::batches {

class SampleOrder {
 public:
  /// Requires size >= 1. Each `draw` has another order with the same seed.
  SampleOrder(std::uint64_t seed, std::int64_t size, Draw draw = Draw::sample_order);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(size_); }
  /// The sample at `place` of `epoch`. Requires 0 <= place < size and epoch >= 0.
  [[nodiscard]] std::int64_t operator()(std::int64_t epoch, std::int64_t place) const;

 private:
  [[nodiscard]] std::uint64_t encipher(std::uint64_t epoch, std::uint64_t value) const;

  RandomKey key_;
  std::uint64_t size_;
  unsigned low_bits_ = 0, high_bits_ = 0;
};

/// Assigns each sample of a run to a part of a mixture and to a sample of that part. Computed, not
/// stored, like the order within a part.
///
/// Samples come in blocks of 4096. In each block part k has its quota of places, which is computed
/// from the weights once (largest remainders). A pseudo-random permutation under (seed, mixture), a
/// different one for each block, assigns the places.
///
/// 1. at() is a pure function of (seed, quotas, index).
/// 2. Among the first n samples, for every n, each part's samples are 0, 1, 2, … without a gap.
/// 3. With one part, sample i is its sample i.
///
/// Threads: const members are safe from several threads.
class MixtureOrder {
 public:
  static constexpr std::int64_t block = 4096;

  struct Place {
    std::size_t part = 0;
    std::int64_t sample = 0;  ///< of the part, counted from 0
  };

  /// The quotas add up to `block`.
  MixtureOrder(std::uint64_t seed, std::vector<std::int64_t> quotas);

  [[nodiscard]] Place at(std::int64_t index) const;
  /// How many of the first `samples` come from each part.
  [[nodiscard]] std::vector<std::int64_t> counts(std::int64_t samples) const;
  [[nodiscard]] const std::vector<std::int64_t>& quotas() const { return quotas_; }

 private:
  /// The places of one block; the last block that was requested is cached.
  struct Block {
    std::mutex mutex;
    std::int64_t number = -1;
    std::vector<Place> places;  // sample: counted from the block's first
  };
  void deal(std::int64_t number, Block& made) const;

  std::vector<std::int64_t> quotas_, ends_;
  std::optional<SampleOrder> order_;  // none with one part
  std::shared_ptr<Block> dealt_ = std::make_shared<Block>();
};

/// The quotas of weights above 0; a part whose share is too small for a place gets 0.
std::vector<std::int64_t> quotas_of(std::span<const double> weights);

}  // namespace trireme::batches
