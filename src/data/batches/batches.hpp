// SPDX-License-Identifier: Apache-2.0
// The number of samples of each step, and the samples that a rank computes in each micro-step. Pure
// arithmetic.
//
// 1. The size of a step's global batch is a function of the step alone. Samples are used in the
//    order of their indices. So a run whose batch grows sees the same samples in the same order as
//    any other, in batches of other sizes.
// 2. A step's global batch is the samples [first, first + sequences). Rank r computes the r-th of
//    `ranks` equal blocks of it, in micro-batches of consecutive samples. Another number of ranks
//    sees the same global batches.
// 3. All micro-batches have the same size, so a larger batch has more micro-steps and needs the same
//    memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace trireme::batches {

/// The sizes of all steps, in sequences over all ranks.
class BatchSizes {
 public:
  /// From step `step` on, which counts from 1.
  struct Part {
    std::int64_t step = 1, sequences = 0;
    bool operator==(const Part&) const = default;
  };

  /// `sequences` in the first step. Requires: sizes of at least 1; steps above 1 that ascend.
  explicit BatchSizes(std::int64_t sequences, const std::vector<Part>& later = {})
      : parts_{{1, sequences}} {
    for (const Part& part : later) {
      TRIREME_EXPECT(part.step > parts_.back().step, "a batch for step {} after one for step {}",
                     part.step, parts_.back().step);
      parts_.push_back(part);
    }
    TRIREME_EXPECT(smallest() >= 1, "{} sequences", smallest());
  }

  /// Of step `step`.
  [[nodiscard]] std::int64_t at(std::int64_t step) const {
    TRIREME_EXPECT(step >= 1, "step {}", step);
    std::size_t part = parts_.size() - 1;
    while (parts_[part].step > step) --part;
    return parts_[part].sequences;
  }
  /// Of the steps 1 to `steps` together.
  [[nodiscard]] std::int64_t until(std::int64_t steps) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < parts_.size() && parts_[i].step <= steps; ++i) {
      const bool last = i + 1 == parts_.size() || parts_[i + 1].step > steps;
      sum += ((last ? steps + 1 : parts_[i + 1].step) - parts_[i].step) * parts_[i].sequences;
    }
    return sum;
  }
  [[nodiscard]] std::int64_t smallest() const {
    return std::ranges::min(parts_, {}, &Part::sequences).sequences;
  }
  [[nodiscard]] std::int64_t largest() const {
    return std::ranges::max(parts_, {}, &Part::sequences).sequences;
  }
  [[nodiscard]] bool changes() const { return parts_.size() > 1; }
  /// In their order, the first one from step 1 on.
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }

 private:
  std::vector<Part> parts_;
};

/// One step's batch.
struct Batches {
  std::int64_t sequences = 0;        ///< over all ranks
  std::int64_t micro_sequences = 0;  ///< per rank and micro-step
  int ranks = 1;

  [[nodiscard]] std::int64_t per_rank() const { return sequences / ranks; }
  [[nodiscard]] std::int64_t micro_steps() const { return per_rank() / micro_sequences; }

  /// Throws ContractError when the batch does not divide; `trireme check` reports it before.
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

}  // namespace trireme::batches
