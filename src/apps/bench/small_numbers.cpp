// SPDX-License-Identifier: Apache-2.0
#include "bench/small_numbers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/random.hpp"

namespace trireme::bench {

namespace {

/// Number of distinct elements, which are repeated. Odd, so that the rows of a matrix differ.
constexpr std::int64_t num_drawn = (std::int64_t{1} << 22U) - 1;

template <class T>
void fill_as(View to, device::Stream& stream, const std::function<float(std::int64_t)>& value) {
  std::vector<T> numbers(static_cast<std::size_t>(to.elements));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = T(value(static_cast<std::int64_t>(i)));
  stream.device().copy(to, view_of(std::as_const(numbers).data(), to.elements), stream);
  stream.synchronize();
}

}  // namespace

void fill(View to, device::Stream& stream, const std::function<float(std::int64_t)>& value) {
  TRIREME_EXPECT(to.dtype == DType::f32 || to.dtype == DType::bf16, "numbers in {}",
                 name(to.dtype));
  to.dtype == DType::f32 ? fill_as<float>(to, stream, value) : fill_as<Bf16>(to, stream, value);
}

void fill_small_numbers(View to, device::Stream& stream) {
  constexpr std::uint32_t knuth = 2654435761U;  // 2^32 over the golden ratio: scatters the indices
  const std::int64_t drawn = std::min(to.elements, num_drawn);
  fill(to.slice(0, drawn), stream, [](std::int64_t i) {
    return 0.25F - 0.5F * uniform(static_cast<std::uint32_t>(i) * knuth);
  });
  device::Device& device = stream.device();
  for (std::int64_t filled = drawn; filled < to.elements; filled *= 2) {
    const std::int64_t more = std::min(filled, to.elements - filled);
    device.copy(to.slice(filled, more), to.slice(0, more), stream);
  }
  stream.synchronize();
}

}  // namespace trireme::bench
