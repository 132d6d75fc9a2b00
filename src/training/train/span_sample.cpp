// SPDX-License-Identifier: Apache-2.0
#include "train/span_sample.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/round_up.hpp"
#include "base/text.hpp"
#include "device/recorder.hpp"

namespace trireme::train {

std::string SpanSample::text() const {
  return fmt::format(
      "whole spans of {} of {} rank{}, {}, at most {}", ranks, all_ranks, all_ranks == 1 ? "" : "s",
      every_steps == 1 ? std::string("every step") : fmt::format("one step in {}", every_steps),
      bytes_text(bytes));
}

SpanSample sample_of(const record::RecordConfig& config,
                     std::int64_t ranks,
                     std::int64_t steps,
                     std::int64_t spans) {
  SpanSample sample;
  sample.ranks = std::min(config.span_ranks, ranks);
  sample.all_ranks = ranks;
  const std::int64_t of_a_step =
      sample.ranks * spans * static_cast<std::int64_t>(sizeof(device::TimeSample));
  const std::int64_t bound = config.span_megabytes << 20U;
  const std::int64_t most_steps = std::max<std::int64_t>(1, bound / of_a_step);
  sample.every_steps = divided_up(steps, most_steps);
  sample.bytes = divided_up(steps, sample.every_steps) * of_a_step;
  return sample;
}

std::int64_t spans_of_a_step(const reduce::ParallelConfig& parallel,
                             std::int64_t micro_steps,
                             std::int64_t buckets,
                             bool matrices) {
  const std::int64_t of_step = matrices ? 5 : 4;  // step, optim.step, step.sums, .control, matrices
  constexpr std::int64_t of_micro_step = 2;       // data.next, model.train
  constexpr std::int64_t of_reduction = 3, of_gather = 3;  // ready, on the network, waited
  constexpr std::int64_t between = 4;  // evaluation, sample, checkpoint: rarely all
  const std::int64_t reductions = parallel.reduces_micro_steps() ? micro_steps : 1;
  const bool again = parallel.shard == layout::Shard::parameters && parallel.reshard_after_forward;
  const std::int64_t gathers = again ? 2 * micro_steps : parallel.sharded() ? 1 : 0;
  // optim.matrices, and travel and wait in both directions
  const std::int64_t of_matrices = !matrices ? 0 : parallel.sharded() ? 5 : 1;
  return of_step + of_micro_step * micro_steps +
         (of_reduction * reductions + of_gather * gathers + of_matrices) * buckets + between;
}

}  // namespace trireme::train
