// SPDX-License-Identifier: Apache-2.0
// Which global samples a rank computes in which micro-step. Pure arithmetic.
//
// A step's global batch is the samples [first, first + sequences). Rank r takes the r-th of `ranks`
// equal blocks of it and walks through its block in micro-batches of consecutive samples. Another
// rank count sees the same global batches.
#pragma once

#include <cstdint>

#include "base/error.hpp"

namespace trireme::train {

struct Batches {
  std::int64_t sequences = 0;        ///< per step, over all ranks
  std::int64_t micro_sequences = 0;  ///< per rank and micro-step
  int ranks = 1;

  [[nodiscard]] std::int64_t per_rank() const { return sequences / ranks; }
  [[nodiscard]] std::int64_t micro_steps() const { return per_rank() / micro_sequences; }

  /// Throws ContractError when the batch does not divide; `trireme check` tells the user before.
  void validate() const {
    TRIREME_EXPECT(ranks >= 1 && micro_sequences >= 1 && sequences >= 1 &&
                       sequences % (micro_sequences * ranks) == 0,
                   "{} sequences over {} ranks in micro-batches of {}", sequences, ranks,
                   micro_sequences);
  }

  /// The first sample of `rank`'s micro-batch number `micro` in the step whose batch starts at
  /// `first`.
  [[nodiscard]] std::int64_t first_sample(std::int64_t first, int rank, std::int64_t micro) const {
    return first + rank * per_rank() + micro * micro_sequences;
  }
};

}  // namespace trireme::train
