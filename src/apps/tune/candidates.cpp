// SPDX-License-Identifier: Apache-2.0
#include "tune/candidates.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/round_up.hpp"

namespace trireme::tune {
namespace {

constexpr std::int64_t numbers_of_buckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
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

std::vector<std::int64_t> every_other(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> some;
  for (std::size_t i = 0; i + 1 < sizes.size(); i += 2) some.push_back(sizes[i]);
  return some;
}

}  // namespace trireme::tune
