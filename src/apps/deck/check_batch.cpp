// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"

#include "batches/batches.hpp"

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

struct BatchRules : Rules {
  const std::vector<BatchSize> sizes = readable_sizes();

  void batches_split() const {
    if (!circumstances_.trains || !config_.batch.equal_ranks ||
        !readable({"batch.micro_sequences", "batch.equal_ranks"}))
      return;
    for (const BatchSize& size : sizes) splits(size);
  }

  void micro_batches_can_be_numbered() const {
    constexpr std::int64_t most = std::int64_t{1} << 31U;
    if (readable({"batch.micro_sequences", "model.context", "model.preset"}) &&
        shape_.context > 0 && config_.batch.micro_sequences > most / shape_.context)
      conflict({"batch.micro_sequences", "model.context"},
               "a micro-batch can have at most 2^31 tokens");
  }

  void steps_ascend() const {
    const auto& schedule = config_.batch.schedule;
    for (std::size_t i = 1; i < schedule.size(); ++i) {
      const std::string path = fmt::format("batch.schedule[{}].step", i);
      if (places_.readable(path) &&
          places_.readable(fmt::format("batch.schedule[{}].step", i - 1)) &&
          schedule[i].step <= schedule[i - 1].step)
        say(path, fmt::format("step {} follows step {}, but the steps of a schedule must increase",
                              schedule[i].step, schedule[i - 1].step));
    }
  }

  /// data.skip: ranges of samples that do not overlap, and that the run reaches.
  void skips_are_reached() const {
    const std::vector<std::string>& words = config_.data.skip;
    std::vector<batches::Range> ranges;
    for (std::size_t i = 0; i < words.size() && readable({"data.skip"}); ++i) {
      const auto range = batches::range_of(words[i]);
      const auto overlaps = [&](const auto& one) {
        return range->first <= one.last && one.first <= range->last;
      };
      if (!range)
        say_skip(i, "is not a sample or a range of samples. Write 4000 or 4000-4999.");
      else if (range->last < range->first)
        say_skip(i, "ends before it begins. Exchange its numbers.");
      else if (std::ranges::any_of(ranges, overlaps))
        say_skip(i, "overlaps an earlier element. Give each sample once.");
      else
        ranges.push_back(*range);
    }
    std::int64_t step = 1;
    const auto ascends = [&](const auto& one) { return std::exchange(step, one.step) < one.step; };
    const auto& schedule = config_.batch.schedule;
    if (ranges.size() < words.size() || !readable({"run.steps"}) ||
        sizes.size() <= schedule.size() || !std::ranges::all_of(schedule, ascends))
      return;
    const std::int64_t samples = config_.batch.sizes().until(config_.run.steps);
    const std::int64_t end = batches::Skips(words).after(0, samples);
    for (std::size_t i = 0; i < ranges.size(); ++i)
      if (ranges[i].first >= end)
        say_skip(i, fmt::format("is not reached: the last sample of the run is {}. Remove it, or "
                                "raise run.steps.",
                                end - 1));
  }

  void run_is_countable() const {
    if (!readable({"run.steps", "model.context"}) || sizes.empty())
      return;
    const std::int64_t largest = std::ranges::max(sizes, {}, &BatchSize::sequences).sequences;
    const double tokens = static_cast<double>(config_.run.steps) * static_cast<double>(largest) *
                          static_cast<double>(shape_.context);
    if (tokens >= 0x1p62)
      say("run.steps",
          fmt::format(
              "{} steps of {} sequences of {} tokens are {:.3g} tokens, which is too many to count",
              config_.run.steps, largest, shape_.context, tokens));
  }

  void say_skip(std::size_t i, const std::string& text) const {
    say(fmt::format("data.skip[{}]", i), config_.data.skip[i] + " " + text);
  }

  void splits(const BatchSize& size) const {
    const std::int64_t sequences = size.sequences;
    const std::int64_t micro = config_.batch.micro_sequences;
    const std::int64_t ranks = circumstances_.ranks;
    const std::int64_t unit = micro * ranks;
    if (sequences % unit == 0)
      return;
    if (sequences < ranks) {
      say(size.path, fmt::format("{} sequences cannot be split over {} ranks. Start at most {} "
                                 "ranks, or use {} sequences",
                                 sequences, ranks, sequences, unit));
      return;
    }
    std::string micro_works;
    if (sequences % ranks == 0) {
      std::int64_t divisor = std::min(micro, sequences / ranks);
      while (sequences / ranks % divisor != 0) --divisor;
      micro_works = fmt::format(", or micro_sequences: {}", divisor);
    }
    conflict({size.path, "batch.micro_sequences"},
             fmt::format("a step needs a multiple of {} = {} micro_sequences x {}. Use {} "
                         "sequences{}.",
                         unit, micro, counted(ranks, "rank"), multiples_near(sequences, unit),
                         micro_works));
  }
};

}  // namespace

std::vector<BatchSize> Rules::readable_sizes() const {
  const session::BatchConfig& batch = config_.batch;
  std::vector<BatchSize> sizes;
  if (places_.readable("batch.sequences"))
    sizes.push_back({"batch.sequences", batch.sequences});
  for (std::size_t i = 0; i < batch.schedule.size(); ++i) {
    const std::string item = fmt::format("batch.schedule[{}]", i), path = item + ".sequences";
    if (places_.readable(item) && places_.readable(path))
      sizes.push_back({path, batch.schedule[i].sequences});
  }
  return sizes;
}

void check_batch(const Rules& rules) {
  const BatchRules batch{rules};
  batch.batches_split();
  batch.micro_batches_can_be_numbered();
  batch.steps_ascend();
  batch.run_is_countable();
  batch.skips_are_reached();
}

}  // namespace trireme::deck
