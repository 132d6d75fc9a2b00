// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/order_free_sum.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.hpp"

#include "ops/cpu/optimizer/reductions.hpp"
#include "ops/cuda/reductions.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

/// An addition changes a bin by less than 2^32, a normalized bin is below 2^32: 2^30 additions
/// stay below 2^63 with room for merging.
constexpr std::int64_t most_pending = std::int64_t{1} << 30;

}  // namespace

void OrderFreeSum::add(double term) {
  const auto raw = std::bit_cast<std::uint64_t>(term);
  const auto biased = static_cast<int>((raw >> 52U) & 0x7ffU);
  std::uint64_t mantissa = raw & ((std::uint64_t{1} << 52U) - 1);
  const bool negative = (raw >> 63U) != 0;
  if (biased == 0x7ff) {
    ++words_[static_cast<std::size_t>(mantissa != 0 ? nan_word
                                      : negative    ? minus_word
                                                    : plus_word)];
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
  carry_words(words_.data());
  pending_ = 0;
}

void OrderFreeSum::merge(const OrderFreeSum& other) {
  if (pending_ + other.pending_ >= most_pending)
    normalize();
  for (std::size_t i = 0; i < num_words; ++i) words_[i] += other.words_[i];
  pending_ += other.pending_ + 1;
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

void StreamSum::add_squares(std::span<const ConstView> values, device::Stream& stream) {
  if (words_.bytes() > 0)
    return add_on_gpu(values, true, stream);
  for (const ConstView& view : values)
    on_cpu(stream, "add_squares").run([to = &sum_, from = view.as<float>(), n = view.elements] {
      cpu::add_squares(*to, from, n);
    });
}

void StreamSum::add_values(ConstView values, device::Stream& stream) {
  if (words_.bytes() > 0)
    return add_on_gpu({&values, 1}, false, stream);
  on_cpu(stream, "add_values").run([to = &sum_, from = values.as<float>(), n = values.elements] {
    cpu::add_values(*to, from, n);
  });
}

void StreamSum::add(StreamSum& other, device::Stream& stream) {
  other.carry(stream);
  if (words_.bytes() == 0)
    return on_cpu(stream, "add").run([to = &sum_, from = &other.sum_] { to->merge(*from); });
  on_cuda(stream, [&](auto raw) {
    cuda::add_words(reinterpret_cast<std::int64_t*>(words_.data()),
                    reinterpret_cast<const std::int64_t*>(other.words_.data()), raw);
  });
  ++pending_;
}

void StreamSum::add_on_gpu(std::span<const ConstView> values,
                           bool squared,
                           device::Stream& stream) {
  auto* words = reinterpret_cast<std::int64_t*>(words_.data());
  std::array<cuda::Values, cuda::most_summed> listed;
  std::size_t size = 0;
  std::int64_t terms = 0;
  const auto add_listed = [&] {
    const bool full = pending_ + terms > most_pending;
    on_cuda(stream, [&](auto raw) {
      if (full)
        cuda::carry(words, raw);
      cuda::add_to_words(words, std::span(listed).first(size), squared, raw);
    });
    pending_ = (full ? 1 : pending_) + terms;
    size = 0;
    terms = 0;
  };
  for (const ConstView& view : values)
    for (std::int64_t begin = 0, n = 0; begin < view.elements; begin += n) {
      n = std::min(most_pending - terms, view.elements - begin);
      listed[size++] = {view.as<float>() + begin, n};
      terms += n;
      if (size == listed.size() || terms == most_pending)
        add_listed();
    }
  if (size > 0)
    add_listed();
}

void StreamSum::carry(device::Stream& stream) {
  if (words_.bytes() > 0) {
    on_cuda(stream,
            [&](auto raw) { cuda::carry(reinterpret_cast<std::int64_t*>(words_.data()), raw); });
    pending_ = 1;
  } else {
    on_cpu(stream, "carry").run([sum = &sum_] { sum->normalize(); });
  }
}

void StreamSum::store(View words, device::Stream& stream) {
  carry(stream);
  stream.device().copy(
      words, words_.bytes() > 0 ? words_.view(DType::i64) : view_of(sum_.words().data(), num_words),
      stream);
}

void StreamSum::fetch(device::Stream& stream) {
  carry(stream);
  if (words_.bytes() > 0)
    stream.device().copy(host_words_.view(DType::u8), words_.view(DType::u8), stream);
}

OrderFreeSum& StreamSum::fetched() {
  if (words_.bytes() > 0) {
    sum_ = {};
    std::memcpy(sum_.words().data(), host_words_.data(), host_words_.bytes());
  }
  return sum_;
}

void values_of_words(View values, ConstView words, device::Stream& stream) {
  const std::int64_t n = values.elements;
  TRIREME_EXPECT(words.elements == n * num_words, "{} words for {} values", words.elements, n);
  auto* to = values.as<double>();
  const auto* from = words.as<std::int64_t>();
  if (on_cuda(stream, [&](auto raw) { cuda::values_of_words(to, from, n, raw); }))
    return;
  on_cpu(stream, "values_of_words").run([to, from, n] {
    for (std::int64_t i = 0; i < n; ++i) to[i] = value_of_words(from + i * num_words);
  });
}

}  // namespace trireme::ops
