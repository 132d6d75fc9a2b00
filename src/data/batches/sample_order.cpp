// SPDX-License-Identifier: Apache-2.0
#include "batches/sample_order.hpp"

#include <bit>

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

}  // namespace trireme::batches
