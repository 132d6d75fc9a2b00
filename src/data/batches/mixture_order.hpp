// SPDX-License-Identifier: Apache-2.0
// Assigns each sample of a run to a part of a mixture and to a sample of that part. Computed, not
// stored, like the order within a part (sample_order.hpp).
//
// Samples come in blocks of 4096. In each block part k has its quota of places, which is computed
// from the weights once (largest remainders). A pseudo-random permutation under (seed, mixture), a
// different one for each block, assigns the places.
//
// 1. at() is a pure function of (seed, quotas, index).
// 2. Among the first n samples, for every n, each part's samples are 0, 1, 2, … without a gap.
// 3. With one part, sample i is its sample i.
//
// Threads: const members are safe from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "batches/sample_order.hpp"

namespace trireme::batches {

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
  /// One block, dealt out; the last one that was asked for is kept.
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
