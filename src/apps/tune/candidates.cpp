// SPDX-License-Identifier: Apache-2.0
#include "tune/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/round_up.hpp"

namespace trireme::tune {
namespace {

constexpr std::int64_t numbers_of_buckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr std::ptrdiff_t most_alike = 2;
constexpr double as_short = 1.005;
/// Factor on the deck's predicted step: a tenth of the gain that a setting needs to be chosen.
constexpr double worth_running = 0.999;

bool same_compute(const Candidate& a, const Candidate& b) {
  return a.setting.micro_sequences == b.setting.micro_sequences &&
         a.setting.recompute == b.setting.recompute;
}

/// The number of parameters of each bucket.
std::vector<std::size_t> ends_of(const layout::Plan& plan) {
  std::vector<std::size_t> ends;
  for (const layout::Bucket& bucket : plan.buckets()) ends.push_back(bucket.parameters.size());
  return ends;
}

}  // namespace

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
    return std::abs(std::log(static_cast<double>(size) / static_cast<double>(own)));
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

std::vector<Candidate> candidates(const Setting& own,
                                  const Choices& choices,
                                  const Additions& additions) {
  TRIREME_EXPECT(!choices.transports.empty() && !choices.computes.empty(),
                 "{} transports, {} computes", choices.transports.size(), choices.computes.size());
  std::vector<Candidate> all;
  for (const Choices::Option& option : choices.transports)
    for (const Choices::Compute& compute : choices.computes)
      for (std::size_t b = 0; b <= choices.bucket_elements.size(); ++b) {
        Candidate one{.setting = own, .wire = option.wire};
        one.setting.transport = option.transport;
        one.setting.micro_sequences = compute.micro_sequences;
        one.setting.recompute = compute.recompute;
        if (b > 0) {
          one.setting.bucket_elements.value = choices.bucket_elements[b - 1];
          one.setting.bucket_boundaries.clear();
        }
        one.changes_bits =
            changes_bits(additions, own, choices.transports.front().wire, one.setting, one.wire);
        all.push_back(std::move(one));
      }
  return all;
}

std::vector<std::size_t> shortlist(const std::vector<Candidate>& all, std::size_t most) {
  const Candidate& own = all.front();
  std::vector<std::size_t> left, chosen{0};
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].predicted_s < worth_running * own.predicted_s)
      left.push_back(i);
  const auto changes = [&](std::size_t i) {
    return std::tuple(all[i].changes_bits, differences(own.setting, all[i].setting).size(),
                      all[i].predicted_s);
  };
  while (chosen.size() <= most && !left.empty()) {
    const auto predicted = [&](std::size_t i) { return all[i].predicted_s; };
    const double enough = as_short * predicted(*std::ranges::min_element(left, {}, predicted));
    const auto best = *std::ranges::min_element(
        left, {}, [&](std::size_t i) { return std::pair(predicted(i) > enough, changes(i)); });
    chosen.push_back(best);
    const auto alike = [&](std::size_t i) { return same_compute(all[i], all[best]); };
    const bool full = std::count_if(chosen.begin() + 1, chosen.end(), alike) >= most_alike;
    std::erase_if(left, [&](std::size_t i) { return i == best || (full && alike(i)); });
  }
  return chosen;
}

}  // namespace trireme::tune
