// SPDX-License-Identifier: Apache-2.0
#include "ops/order_free_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.hpp"

#include "ops/dispatch.hpp"
#include "ops/order_free_sum_cpu.hpp"
#include "ops/reductions_cuda.hpp"

namespace trireme::ops {
namespace {

// Bin i counts multiples of 2^(32 i - 1074).
constexpr int bin_bits = 32;
constexpr std::int64_t bin_mask = 0xffffffff;
constexpr int lowest_exponent = -1074;
constexpr std::size_t nan_word = OrderFreeSum::num_bins;
constexpr std::size_t plus_word = nan_word + 1, minus_word = nan_word + 2;
/// An addition changes a bin by less than 2^32, a normalized bin is below 2^32: 2^30 additions
/// stay below 2^63 with room for merging.
constexpr std::int64_t most_pending = std::int64_t{1} << 30;

using Words = std::array<std::int64_t, OrderFreeSum::num_words>;

/// Bins into [0, 2^32), except the last, which carries the sign.
void carry(Words& words) {
  for (std::size_t i = 0; i + 1 < OrderFreeSum::num_bins; ++i) {
    words[i + 1] += words[i] >> bin_bits;  // arithmetic shift: towards minus infinity
    words[i] &= bin_mask;
  }
}

}  // namespace

void OrderFreeSum::add(double term) {
  const auto raw = std::bit_cast<std::uint64_t>(term);
  const auto biased = static_cast<int>((raw >> 52U) & 0x7ffU);
  std::uint64_t mantissa = raw & ((std::uint64_t{1} << 52U) - 1);
  const bool negative = (raw >> 63U) != 0;
  if (biased == 0x7ff) {
    ++words_[mantissa != 0 ? nan_word : negative ? minus_word : plus_word];
    return;
  }
  if (biased != 0)
    mantissa |= std::uint64_t{1} << 52U;
  // Subnormals and the smallest normals share the lowest exponent.
  const auto position = static_cast<unsigned>(biased == 0 ? 0 : biased - 1);
  const std::size_t bin = position / bin_bits;
  const auto wide = static_cast<unsigned __int128>(mantissa) << (position % bin_bits);
  const auto part = [&](unsigned i) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(wide >> (i * bin_bits)) &
                                     0xffffffffU);
  };
  const std::int64_t sign = negative ? -1 : 1;
  words_[bin] += sign * part(0);
  words_[bin + 1] += sign * part(1);
  words_[bin + 2] += sign * part(2);
  if (++pending_ >= most_pending)
    normalize();
}

void OrderFreeSum::normalize() {
  carry(words_);
  pending_ = 0;
}

void OrderFreeSum::merge(const OrderFreeSum& other) {
  if (pending_ + other.pending_ >= most_pending)
    normalize();
  for (std::size_t i = 0; i < num_words; ++i) words_[i] += other.words_[i];
  pending_ += other.pending_ + 1;
}

double OrderFreeSum::value() const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (words_[nan_word] != 0 || (words_[plus_word] != 0 && words_[minus_word] != 0))
    return std::numeric_limits<double>::quiet_NaN();
  if (words_[plus_word] != 0)
    return infinity;
  if (words_[minus_word] != 0)
    return -infinity;

  Words words = words_;
  carry(words);
  const bool negative = words[num_bins - 1] < 0;
  if (negative) {
    for (std::size_t i = 0; i < num_bins; ++i) words[i] = -words[i];
    carry(words);
  }
  std::size_t top = num_bins;
  while (top > 0 && words[top - 1] == 0) --top;
  if (top == 0)
    return 0;
  --top;

  // The highest bin and the two below it hold at least 65 bits; what lies lower only breaks ties.
  unsigned __int128 head = 0;
  for (std::size_t i = 0; i < 3; ++i)
    head = (head << bin_bits) | static_cast<std::uint64_t>(top >= i ? words[top - i] : 0);
  bool lower = false;
  for (std::size_t i = 0; i + 3 <= top; ++i) lower = lower || words[i] != 0;
  int exponent = lowest_exponent + bin_bits * (static_cast<int>(top) - 2);
  int bits = 128 - (head >> 64U != 0 ? std::countl_zero(static_cast<std::uint64_t>(head >> 64U))
                                     : 64 + std::countl_zero(static_cast<std::uint64_t>(head)));
  // Subnormal results keep fewer than 53 bits.
  const int drop = std::max(bits - 53, lowest_exponent - exponent);
  if (drop > 0) {
    const auto half = static_cast<unsigned __int128>(1) << static_cast<unsigned>(drop - 1);
    const auto rest = head & ((half << 1U) - 1);
    head >>= static_cast<unsigned>(drop);
    exponent += drop;
    if (rest > half || (rest == half && (lower || (head & 1U) != 0)))
      ++head;
  }
  const double magnitude =
      std::ldexp(static_cast<double>(static_cast<std::uint64_t>(head)), exponent);
  return negative ? -magnitude : magnitude;
}

StreamSum::StreamSum(device::Device& device) {
  if (device.kind() == device::Kind::cpu)
    return;
  constexpr std::size_t bytes = OrderFreeSum::num_words * sizeof(std::int64_t);
  words_ = device.allocate(bytes, "an order-free sum");
  host_words_ = device.allocate_shared_with_host(bytes, "an order-free sum");
}

void StreamSum::clear(device::Stream& stream) {
  pending_ = 0;
  if (words_.bytes() > 0)
    stream.device().fill_zero(words_.view(DType::u8), stream);
  else
    on_cpu(stream, "clear").run([to = &sum_] { *to = {}; });
}

void StreamSum::add_squares(ConstView values, device::Stream& stream) {
  if (words_.bytes() > 0)
    return add_on_gpu(values, true, stream);
  on_cpu(stream, "add_squares").run([to = &sum_, from = values.as<float>(), n = values.elements] {
    cpu::add_squares(*to, from, n);
  });
}

void StreamSum::add_values(ConstView values, device::Stream& stream) {
  if (words_.bytes() > 0)
    return add_on_gpu(values, false, stream);
  on_cpu(stream, "add_values").run([to = &sum_, from = values.as<float>(), n = values.elements] {
    cpu::add_values(*to, from, n);
  });
}

void StreamSum::add_on_gpu(ConstView values, bool squared, device::Stream& stream) {
  auto* words = reinterpret_cast<std::int64_t*>(words_.data());
  for (std::int64_t begin = 0; begin < values.elements; begin += most_pending) {
    const std::int64_t n = std::min(most_pending, values.elements - begin);
    const float* from = values.as<float>() + begin;
    const bool full = pending_ + n > most_pending;
    on_cuda(stream, [&](auto raw) {
      if (full)
        cuda::carry(words, raw);
      cuda::add_to_words(words, from, n, squared, raw);
    });
    pending_ = (full ? 1 : pending_) + n;
  }
}

void StreamSum::fetch(device::Stream& stream) {
  if (words_.bytes() == 0)
    return;
  on_cuda(stream,
          [&](auto raw) { cuda::carry(reinterpret_cast<std::int64_t*>(words_.data()), raw); });
  pending_ = 1;
  stream.device().copy(host_words_.view(DType::u8), words_.view(DType::u8), stream);
}

OrderFreeSum& StreamSum::fetched() {
  if (words_.bytes() > 0) {
    sum_ = {};
    std::memcpy(sum_.words().data(), host_words_.data(), host_words_.bytes());
  }
  return sum_;
}

}  // namespace trireme::ops
