// SPDX-License-Identifier: Apache-2.0
// A sum whose bits depend on the set of terms only: not on their order, not on who added which, not
// on how the sums of parts were merged (docs/design/training.md, "Exact sums"). Terms are fp64,
// which holds squares of fp32 values exactly (24 + 24 <= 53 bits).
// 1. NaN and infinities are counted, not binned; value() is NaN or infinite accordingly.
// 2. A plain array of 64-bit integers, so that ranks merge with an integer sum: on a stream
//    (Communicator::all_reduce of what store() wrote), or on the host (World::sum).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/optimizer/order_free_words.hpp"

namespace trireme::ops {

class OrderFreeSum {
 public:
  static constexpr std::size_t num_words = ops::num_words;

  void add(double term);
  void merge(const OrderFreeSum& other);
  /// The exact sum, rounded to nearest even.
  [[nodiscard]] double value() const { return value_of_words(words_.data()); }

  /// The accumulator as integers, for World::sum. Call normalize() before, so that `ranks`
  /// additions cannot overflow.
  [[nodiscard]] std::span<std::int64_t> words() { return words_; }
  void normalize();

 private:
  std::array<std::int64_t, num_words> words_{};
  std::int64_t pending_ = 0;  // additions since the last normalize
};

/// An OrderFreeSum, initially 0, to which streams of a device add, one stream at a time. On a GPU
/// the words are in device memory, and fetch() copies them to the host.
class StreamSum {
 public:
  explicit StreamSum(device::Device& device);
  StreamSum(const StreamSum&) = delete;
  StreamSum& operator=(const StreamSum&) = delete;

  void clear(device::Stream& stream);
  /// Adds the squares of `values` (fp32), or the values. A GPU takes up to 64 views in one launch.
  void add_squares(std::span<const ConstView> values, device::Stream& stream);
  void add_squares(ConstView values, device::Stream& stream) { add_squares({&values, 1}, stream); }
  void add_values(ConstView values, device::Stream& stream);
  /// Adds what was added to `other` so far.
  void add(StreamSum& other, device::Stream& stream);
  /// Writes the current sum to `words`, [num_words] int64 in memory of the stream's device, with
  /// carries propagated as by normalize().
  void store(View words, device::Stream& stream);
  /// Copies the current sum to the host, after the additions.
  void fetch(device::Stream& stream);
  /// What the last fetch() sent. Requires: the host has waited for its stream since.
  OrderFreeSum& fetched();

 private:
  void carry(device::Stream& stream);
  void add_on_gpu(std::span<const ConstView> values, bool squared, device::Stream& stream);

  OrderFreeSum sum_;
  device::Buffer words_, host_words_;  // empty on a CPU
  std::int64_t pending_ = 0;           // additions to words_ since they were last carried
};

/// Computes on the device the values of sums whose words are consecutive in its memory.
/// Shapes: values [n] fp64, words [n, num_words] int64.
void values_of_words(View values, ConstView words, device::Stream& stream);

}  // namespace trireme::ops
