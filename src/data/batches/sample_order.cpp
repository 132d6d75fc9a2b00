// SPDX-License-Identifier: Apache-2.0
#include "batches/sample_order.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace trireme::batches {

namespace {
constexpr unsigned rounds = 8;

std::uint64_t low_mask(unsigned bits) {
  return (std::uint64_t{1} << bits) - 1;
}
}  // namespace

SampleOrder::SampleOrder(std::uint64_t seed, std::int64_t size, Draw draw)
    : key_(RandomKey::of(seed, draw)), size_(static_cast<std::uint64_t>(size)) {
  TRIREME_EXPECT(size >= 1, "an order of {} samples", size);
  const auto bits = static_cast<unsigned>(std::bit_width(size_ - 1));
  high_bits_ = bits / 2;
  low_bits_ = bits - high_bits_;
}

std::uint64_t SampleOrder::encipher(std::uint64_t epoch, std::uint64_t value) const {
  std::uint64_t low = value & low_mask(low_bits_), high = value >> low_bits_;
  for (unsigned round = 0; round < rounds; ++round) {
    // Halves keep their widths, so each round is undone by repeating it.
    const bool even = round % 2 == 0;
    const Words4 random =
        philox(key_, even ? low : high, (std::uint64_t{round} << 56U) | (epoch & low_mask(56)));
    const std::uint64_t mix = (std::uint64_t{random.w[0]} << 32U) | random.w[1];
    if (even)
      high ^= mix & low_mask(high_bits_);
    else
      low ^= mix & low_mask(low_bits_);
  }
  return (high << low_bits_) | low;
}

std::int64_t SampleOrder::operator()(std::int64_t epoch, std::int64_t place) const {
  TRIREME_EXPECT(epoch >= 0 && place >= 0 && place < size(), "place {} of epoch {} in {} samples",
                 place, epoch, size());
  auto value = static_cast<std::uint64_t>(place);
  do {
    value = encipher(static_cast<std::uint64_t>(epoch), value);
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

MixtureOrder::MixtureOrder(std::uint64_t seed, std::vector<std::int64_t> quotas)
    : quotas_(std::move(quotas)), ends_(quotas_.size()) {
  std::partial_sum(quotas_.begin(), quotas_.end(), ends_.begin());
  TRIREME_EXPECT(!ends_.empty() && ends_.back() == block, "quotas of {} places",
                 ends_.empty() ? 0 : ends_.back());
  if (quotas_.size() > 1)
    order_.emplace(seed, block, Draw::mixture);
}

MixtureOrder::Place MixtureOrder::at(std::int64_t index) const {
  TRIREME_EXPECT(index >= 0, "sample {}", index);
  if (!order_)
    return {0, index};
  const std::int64_t number = index / block;
  const std::lock_guard lock(dealt_->mutex);
  deal(number, *dealt_);
  Place place = dealt_->places[static_cast<std::size_t>(index % block)];
  place.sample += number * quotas_[place.part];
  return place;
}

void MixtureOrder::deal(std::int64_t number, Block& made) const {
  if (made.number == number)
    return;
  made.places.resize(static_cast<std::size_t>(block));
  std::vector<std::int64_t> seen(quotas_.size());
  for (std::int64_t i = 0; i < block; ++i) {
    const auto end = std::ranges::upper_bound(ends_, (*order_)(number, i));
    const auto part = static_cast<std::size_t>(end - ends_.begin());
    made.places[static_cast<std::size_t>(i)] = {part, seen[part]++};
  }
  made.number = number;
}

std::vector<std::int64_t> MixtureOrder::counts(std::int64_t samples) const {
  if (!order_)
    return {samples};
  std::vector<std::int64_t> counts;
  counts.reserve(quotas_.size());
  for (const std::int64_t quota : quotas_) counts.push_back(samples / block * quota);
  for (std::int64_t index = samples / block * block; index < samples; ++index)
    ++counts[at(index).part];
  return counts;
}

std::vector<std::int64_t> quotas_of(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> quotas;
  std::vector<std::pair<double, std::size_t>> rests;  // the largest first, the first of equals
  std::int64_t left = MixtureOrder::block;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] / sum * static_cast<double>(MixtureOrder::block);
    quotas.push_back(static_cast<std::int64_t>(std::floor(share)));
    rests.emplace_back(std::floor(share) - share, i);
    left -= quotas.back();
  }
  std::ranges::sort(rests);
  for (std::size_t i = 0; left > 0; ++i, --left) ++quotas[rests[i % rests.size()].second];
  return quotas;
}

}  // namespace trireme::batches
