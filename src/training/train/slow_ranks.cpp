// SPDX-License-Identifier: Apache-2.0
#include "train/slow_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quantile.hpp"

namespace trireme::train {
namespace {

/// The standard deviation of normal values over their MAD.
constexpr double deviation_of_mad = 1.4826;
/// Six standard deviations of the median of a window, in those of its values.
const double certain = 6 * 1.2533 / std::sqrt(static_cast<double>(SlowRankRule::window));

/// The lower median of ascending values without one of them.
double median_of_others(const std::vector<double>& sorted, double one) {
  const auto at = std::ranges::lower_bound(sorted, one) - sorted.begin();
  const std::size_t middle = (sorted.size() - 2) / 2;
  return sorted[middle < static_cast<std::size_t>(at) ? middle : middle + 1];
}

}  // namespace

SlowRankRule::Changes SlowRankRule::add(std::span<const double> seconds) {
  double sum = 0;
  std::int64_t known = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    sum += ranks_[r].seconds += seconds[r];
    known += ranks_[r].seconds > 0 ? 1 : 0;
  }
  if (known < 2 || sum < sample_s * static_cast<double>(known))
    return {};
  end_sample();
  const bool ends =
      std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.ratios.size() == window; });
  return ends ? end_window() : Changes{};
}

void SlowRankRule::end_sample() {
  std::vector<double> sorted;
  for (const Rank& rank : ranks_)
    if (rank.seconds > 0)
      sorted.push_back(rank.seconds);
  std::ranges::sort(sorted);
  for (Rank& rank : ranks_)
    if (const double seconds = std::exchange(rank.seconds, 0); seconds > 0)
      rank.ratios.push_back(std::log(seconds / median_of_others(sorted, seconds)));
}

SlowRankRule::Changes SlowRankRule::end_window() {
  std::vector<double> ratios, variations;
  for (Rank& rank : ranks_) {
    rank.ratio = rank.ratios.empty() ? 0 : median(rank.ratios);
    if (rank.ratios.empty())
      continue;
    ratios.push_back(rank.ratio);
    variations.push_back(mad(rank.ratios));
  }
  const double usual = median(variations);
  // Of two or three ranks, at least half differ from the others when one does.
  const double spread = ratios.size() > 3 ? 5 * deviation_of_mad * mad(ratios) : 0;
  Changes changes{.window_ended = true};
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const double varies = rank.ratios.empty() ? 0 : mad(rank.ratios);
    rank.ratios.clear();
    const double noise = certain * deviation_of_mad * std::max(varies, usual);
    const double least = std::log(least_factor);
    const bool changed =
        rank.slow ? rank.ratio < least / 2 : rank.ratio > std::max({least, noise, spread});
    rank.windows = changed ? rank.windows + 1 : 0;
    if (rank.windows < 2)
      continue;
    rank.windows = 0;
    rank.slow = !rank.slow;
    (rank.slow ? changes.slow : changes.recovered).push_back(static_cast<int>(r));
  }
  std::ranges::stable_sort(changes.slow, std::ranges::greater(),
                           [&](int rank) { return factor(rank); });
  return changes;
}

double SlowRankRule::factor(int rank) const {
  return std::exp(ranks_[static_cast<std::size_t>(rank)].ratio);
}

bool SlowRankRule::suspects(int rank) const {
  const Rank& one = ranks_[static_cast<std::size_t>(rank)];
  return !one.slow && one.windows == 1;
}

SlowRanks::SlowRanks(comm::World& world, const device::EnergyMeter& meter, bool on_cpu)
    : world_(world),
      meter_(meter),
      on_cpu_(on_cpu),
      words_(static_cast<std::size_t>(world.size())),
      times_(words_.size()),
      rule_(world.size()),
      since_(static_cast<std::size_t>(world.size())) {}

std::span<std::int64_t> SlowRanks::words() {
  std::ranges::fill(words_, 0);
  words_[static_cast<std::size_t>(world_.rank())] = static_cast<std::int64_t>(seconds_ * 1e9);
  return words_;
}

void SlowRanks::measured(double seconds, const batches::Batches& batch) {
  const std::int64_t own = batch.micro_steps(world_.rank());
  busy_s_ += seconds;
  // Fewer sequences in as many micro-steps take less time, but it is not known how much less.
  const bool comparable =
      batch.leaves > 0 || batch.share(world_.rank()).count == batch.most_sequences();
  seconds_ = own == 0 || !comparable
                 ? 0
                 : std::max(seconds, 0.0) * static_cast<double>(batch.micro_steps()) /
                       static_cast<double>(own);
}

std::vector<std::string> SlowRanks::look(std::int64_t step) {
  std::ranges::transform(words_, times_.begin(),
                         [](std::int64_t word) { return static_cast<double>(word) * 1e-9; });
  const SlowRankRule::Changes changes = rule_.add(times_);
  if (changes.window_ended && rule_.suspects(world_.rank())) {
    before_ = load_of_this_process();
    busy_s_ = 0;
  }
  std::vector<std::string> lines;
  for (const int rank : changes.slow) since_[static_cast<std::size_t>(rank)] = step;
  if (!changes.slow.empty()) {
    const int slowest = changes.slow.front();
    const auto others = changes.slow.size() - 1;
    lines.push_back(fmt::format(
        "rank {} is slow{}: its forward and backward passes take {:.2f} times as long as those of "
        "the other ranks. {}",
        slowest,
        others == 0 ? ""
                    : fmt::format(", as {} other rank{}", others, others == 1 ? " is" : "s are"),
        rule_.factor(slowest),
        world_.broadcast(slowest == world_.rank() ? reasons() : "", slowest)));
  }
  for (const int rank : changes.recovered)
    lines.push_back(fmt::format("rank {} is no longer slow, after {} steps", rank,
                                step - since_[static_cast<std::size_t>(rank)]));
  return lines;
}

std::string SlowRanks::reasons() const {
  auto found = meter_.gpu_slowdowns();
  for (std::string& reason : slowdowns(before_, load_of_this_process(), on_cpu_ ? busy_s_ : 0))
    found.push_back(std::move(reason));
  if (std::string misplaced = on_cpu_ ? misplaced_memory() : ""; !misplaced.empty())
    found.push_back(std::move(misplaced));
  return found.empty() ? fmt::format("Its host {} does not tell why", world_.host())
                       : fmt::format("Likely reason on its host {}: {}", world_.host(),
                                     fmt::join(found, "; "));
}

}  // namespace trireme::train
