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

#include <cstdint>

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

}  // namespace trireme::batches
