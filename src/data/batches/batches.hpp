// SPDX-License-Identifier: Apache-2.0
// Arithmetic: the number of samples of each step, and a rank's samples in each micro-step.
//
// 1. The size of a step's global batch is a function of the step alone. Samples are used in the
//    order of their indices. So a run whose batch grows sees the same samples in the same order as
//    any other, in batches of other sizes.
// 2. A step's global batch is the samples [first, first + sequences). Each rank computes one block
//    of it, in micro-batches of consecutive samples. Another number of ranks sees the same global
//    batches.
// 3. The number of ranks need not divide the batch: blocks may differ by one sample, or by leaves
//    of a tree, and a rank's last micro-batch may be smaller. A larger batch has more micro-steps
//    and needs the same memory.
// 4. A run that skips samples uses those that follow in their places. Their indices stay what they
//    are: what is skipped does not depend on what was skipped before.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/pairwise.hpp"
#include "base/round_up.hpp"

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

  /// Sequences of step `step`.
  [[nodiscard]] std::int64_t at(std::int64_t step) const {
    TRIREME_EXPECT(step >= 1, "step {}", step);
    return (std::ranges::upper_bound(parts_, step, {}, &Part::step) - 1)->sequences;
  }
  /// Sequences of the steps 1 to `steps` together.
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

/// Samples first to last, or steps.
struct Range {
  std::int64_t first = 0, last = 0;
  bool operator==(const Range&) const = default;
};
/// The range in "40-60" or "40"; none for other words.
std::optional<Range> range_of(const std::string& word);

/// The samples that a run skips (data.skip).
class Skips {
 public:
  Skips() = default;
  /// Requires: range_of() reads the words.
  explicit Skips(const std::vector<std::string>& words);

  /// Number of skipped samples in [0, end).
  [[nodiscard]] std::int64_t count(std::int64_t end) const;
  /// Whether both skip the same samples in [0, end).
  [[nodiscard]] bool same_before(std::int64_t end, const Skips& other) const;
  /// The sample after the last of `count` samples used from sample `first` on; `first` for none.
  [[nodiscard]] std::int64_t after(std::int64_t first, std::int64_t count) const;

 private:
  std::vector<Range> ranges_;  ///< in increasing order, with a sample between any two
};

/// One step's batch.
struct Batches {
  std::int64_t sequences = 0;        ///< over all ranks
  std::int64_t micro_sequences = 0;  ///< per rank and micro-step, at most
  int ranks = 1;
  std::int64_t leaves = 0;   ///< of a tree of gradients; 0: there is none
  std::int64_t updates = 1;  ///< local steps, one after another, each with an equal part

  [[nodiscard]] std::int64_t sequences_of_update() const { return sequences / updates; }

  /// Sequences of one rank in an update, and the first of them in the update's part of the batch.
  /// With leaves, those of its leaves; otherwise an equal share, and one more on the first ranks
  /// where the part does not divide.
  struct Share {
    std::int64_t begin = 0, count = 0;
  };
  [[nodiscard]] Share share(int rank) const {
    if (leaves > 0) {
      const LeafRange own = leaves_of_term(leaves, rank, ranks);
      return {sequences / leaves * own.begin, sequences / leaves * own.count};
    }
    const std::int64_t least = sequences_of_update() / ranks, more = sequences_of_update() % ranks;
    return {rank * least + std::min<std::int64_t>(rank, more), least + (rank < more ? 1 : 0)};
  }

  /// Of the rank with most of them in an update. With leaves, it is one whose number was halved
  /// least often.
  [[nodiscard]] std::int64_t most_sequences() const {
    const auto parts = static_cast<std::int64_t>(std::bit_floor(static_cast<unsigned>(ranks)));
    return leaves > 0 ? sequences / parts : share(0).count;
  }

  /// Of the rank with most of them. Without leaves, every rank takes part in as many, the last of
  /// which may have no samples of it.
  [[nodiscard]] std::int64_t micro_steps() const {
    return updates * divided_up(most_sequences(), micro_sequences);
  }
  [[nodiscard]] std::int64_t micro_steps(int rank) const {
    return leaves > 0 ? share(rank).count / micro_sequences : micro_steps();
  }

  /// Throws ContractError when leaves do not divide; `trireme check` reports it before.
  void validate() const {
    TRIREME_EXPECT(ranks >= 1 && micro_sequences >= 1 && sequences >= 1 &&
                       (leaves == 0 || sequences % (micro_sequences * leaves) == 0) &&
                       updates >= 1 && sequences % updates == 0 && (leaves == 0 || updates == 1),
                   "{} sequences in {} leaves and {} updates over {} ranks in micro-batches of {}",
                   sequences, leaves, updates, ranks, micro_sequences);
  }

  /// Consecutive samples of one micro-batch.
  struct Micro {
    std::int64_t first = 0;
    std::int64_t count = 0;  ///< to be trained on; 0: `first` only stands for a sample
  };
  /// `rank`'s micro-batch number `micro` in the step whose batch starts at `first`.
  [[nodiscard]] Micro micro_batch(std::int64_t first, int rank, std::int64_t micro) const {
    const Share own = share(rank);
    const std::int64_t each = micro_steps(rank) / updates, at = micro % each * micro_sequences;
    first += micro / each * sequences_of_update();
    if (at < own.count)
      return {first + own.begin + at, std::min(micro_sequences, own.count - at)};
    return {first + std::min(own.begin, sequences_of_update() - 1), 0};
  }
};

/// If some ranks have fewer sequences than others, a sentence with sizes that divide; else "".
std::string uneven_text(const Batches& batches);

}  // namespace trireme::batches
