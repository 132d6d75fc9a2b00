// SPDX-License-Identifier: Apache-2.0
// Chooses the ranks and steps whose full spans a run keeps. All spans of all ranks would fill the
// memory of a large run. So run.h5 has statistics over all ranks, and full spans of some ranks and
// some steps, within a limit on their bytes.
//
// 1. All ranks compute the same sample, from the deck and the plan.
// 2. A run on few ranks that stays below the limit keeps every span.
#pragma once

#include <cstdint>
#include <string>

#include "reduce/config.hpp"

#include "record/config.hpp"

namespace trireme::train {

/// Measurements are sent to rank 0 at this interval, in steps.
inline constexpr std::int64_t collect_every_steps = 50;

struct SpanSample {
  std::int64_t ranks = 1;  ///< spread evenly over all, the first among them
  std::int64_t all_ranks = 1;
  std::int64_t every_steps = 1;  ///< the first step, and every N-th after it
  std::int64_t bytes = 0;        ///< at most, in run.h5

  [[nodiscard]] bool has_rank(std::int64_t rank) const {
    // Kept are ceil(i * all_ranks / ranks): those where a new one of `ranks` equal parts begins.
    return rank * ranks / all_ranks != (rank * ranks - ranks) / all_ranks || rank == 0;
  }
  [[nodiscard]] bool has_step(std::int64_t step) const {
    return step < 1 || (step - 1) % every_steps == 0;
  }
  /// "whole spans of 8 of 512 ranks, every 3rd step, at most 256 MiB".
  [[nodiscard]] std::string text() const;
};

/// `spans`: of one rank in one step.
SpanSample sample_of(const record::RecordConfig& config,
                     std::int64_t ranks,
                     std::int64_t steps,
                     std::int64_t spans);

/// How many spans one rank has in one step, at most. `matrices`: with those of Muon.
std::int64_t spans_of_a_step(const reduce::ParallelConfig& parallel,
                             std::int64_t micro_steps,
                             std::int64_t buckets,
                             bool matrices);

}  // namespace trireme::train
