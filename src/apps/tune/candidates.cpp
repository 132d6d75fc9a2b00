// SPDX-License-Identifier: Apache-2.0
#include "tune/candidates.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "base/round_up.hpp"

#include "deck/value.hpp"

namespace trireme::tune {
namespace {

bool same_buckets(const deck::JobConfig& a, const deck::JobConfig& b) {
  return a.parallel.bucket_boundaries == b.parallel.bucket_boundaries &&
         a.parallel.bucket_elements == b.parallel.bucket_elements;
}

constexpr std::int64_t numbers_of_buckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
/// The number of parameters of each bucket.
std::vector<std::size_t> ends_of(const layout::Plan& plan) {
  std::vector<std::size_t> ends;
  for (const layout::Bucket& bucket : plan.buckets()) ends.push_back(bucket.parameters.size());
  return ends;
}

}  // namespace

std::vector<deck::KeyValue> values_of(const deck::JobConfig& config) {
  return {{"batch.micro_sequences", deck::yaml_text(config.batch.micro_sequences)},
          {"model.recompute", deck::yaml_text(config.model.recompute)},
          {"parallel.transport", deck::yaml_text(config.parallel.transport)},
          {"parallel.bucket_elements", deck::yaml_text(config.parallel.bucket_elements)},
          {"parallel.bucket_boundaries", deck::yaml_text(config.parallel.bucket_boundaries)}};
}

std::vector<deck::KeyValue> differences(const deck::JobConfig& base, const deck::JobConfig& other) {
  const auto old = values_of(base);
  auto values = values_of(other);
  std::erase_if(values, [&](const deck::KeyValue& value) {
    return std::ranges::find(old, value) != old.end();
  });
  return values;
}

std::string words_of(const std::vector<deck::KeyValue>& values) {
  std::string words;
  for (const deck::KeyValue& value : values)
    words += (words.empty() ? "" : " ") + value.path + "=" + value.value;
  return words.empty() ? "the deck's values" : words;
}

bool changes_bits(const Additions& additions,
                  const deck::JobConfig& own,
                  comm::Transport own_wire,
                  const deck::JobConfig& other,
                  comm::Transport other_wire) {
  if (own.batch.micro_sequences != other.batch.micro_sequences)
    return true;
  if (additions.reduction != comm::Reduction::sum)
    return false;
  if (additions.replicas > 2 && !same_buckets(own, other))
    return true;
  if (additions.ranks <= 2)
    return false;
  return own_wire != other_wire || (own_wire == comm::Transport::mpi && !same_buckets(own, other));
}

std::vector<std::int64_t> micro_batches(const session::BatchConfig& batch, std::int64_t parts) {
  std::int64_t common = 0;
  const batches::BatchSizes batches = batch.sizes();
  for (const batches::BatchSizes::Part& part : batches.parts())
    common = std::gcd(common, part.sequences);
  TRIREME_EXPECT(parts > 0, "{} parts", parts);
  const std::int64_t share = divided_up(common, parts);
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= share; ++size)
    if (share % size == 0)
      sizes.push_back(size);
  return sizes;
}

std::vector<std::int64_t> nearest(std::vector<std::int64_t> sizes,
                                  std::int64_t own,
                                  std::size_t most) {
  const auto distance = [own](std::int64_t size) {
    const auto [less, more] = std::minmax(size, own);
    return static_cast<double>(more) / static_cast<double>(less);
  };
  std::ranges::stable_sort(sizes, {}, distance);
  sizes.resize(std::min(sizes.size(), most));
  std::ranges::sort(sizes);
  return sizes;
}

std::vector<std::int64_t> bucket_sizes(const layout::Plan& own) {
  std::set<std::vector<std::size_t>> seen{ends_of(own)};
  std::vector<std::int64_t> sizes;
  for (const std::int64_t number : numbers_of_buckets) {
    layout::Options options = own.options();
    options.bucket_elements = divided_up(own.parameter_elements(), number);
    options.boundaries.clear();
    if (seen.insert(ends_of(layout::Plan(own.parameters(), options))).second)
      sizes.push_back(options.bucket_elements);
  }
  return sizes;
}

std::vector<std::int64_t> every_other(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> some;
  for (std::size_t i = 0; i + 1 < sizes.size(); i += 2) some.push_back(sizes[i]);
  return some;
}

Ratio ratio_of(const std::vector<double>& seconds, const std::vector<double>& own) {
  TRIREME_EXPECT(seconds.size() == own.size(), "{} rounds compared with {}", seconds.size(),
                 own.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < own.size(); ++i) ratios.push_back(seconds[i] / own[i]);
  return {median(ratios), quantile(ratios, 0.25), quantile(ratios, 0.75)};
}

bool confirms(const std::vector<double>& seconds, const std::vector<double>& own) {
  std::size_t above = 0;
  for (std::size_t i = 0; i < own.size(); ++i)
    if (seconds[i] >= own[i])
      ++above;
  return ratio_of(seconds, own).measurably_better() && 8 * above <= own.size();
}

std::optional<std::size_t> best_of(const std::vector<Trial>& trials) {
  double least = 1;
  for (const Trial& trial : trials)
    if (trial.ratio.measurably_better())
      least = std::min(least, trial.ratio.median);
  const auto order = [](const Trial& trial) {
    return std::tuple(trial.changes_bits, trial.changed_keys, trial.ratio.median);
  };
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (trials[i].ratio.measurably_better() && trials[i].ratio.median <= least + least_gain &&
        (!best || order(trials[i]) < order(trials[*best])))
      best = i;
  return best;
}

}  // namespace trireme::tune
