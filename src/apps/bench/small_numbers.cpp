// SPDX-License-Identifier: Apache-2.0
#include "bench/small_numbers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "base/random.hpp"

namespace trireme::bench {

namespace {

/// Number of distinct elements, which are repeated. Odd, so that the rows of a matrix differ.
constexpr std::int64_t num_drawn = (std::int64_t{1} << 22U) - 1;

}  // namespace

void fill_small_numbers(View to, device::Stream& stream) {
  TRIREME_EXPECT(to.dtype == DType::f32 || to.dtype == DType::bf16, "small numbers in {}",
                 name(to.dtype));
  constexpr std::uint32_t knuth = 2654435761U;  // 2^32 over the golden ratio: scatters the indices
  const std::int64_t drawn = std::min(to.elements, num_drawn);
  std::vector<float> values(static_cast<std::size_t>(drawn));
  std::vector<Bf16> rounded(to.dtype == DType::bf16 ? values.size() : 0);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.25F - 0.5F * uniform(static_cast<std::uint32_t>(i) * knuth);
  for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] = Bf16(values[i]);
  device::Device& device = stream.device();
  device.copy(to.slice(0, drawn),
              to.dtype == DType::bf16 ? ConstView(view_of(rounded.data(), drawn))
                                      : ConstView(view_of(values.data(), drawn)),
              stream);
  for (std::int64_t filled = drawn; filled < to.elements; filled *= 2) {
    const std::int64_t more = std::min(filled, to.elements - filled);
    device.copy(to.slice(filled, more), to.slice(0, more), stream);
  }
  stream.synchronize();
}

}  // namespace trireme::bench
