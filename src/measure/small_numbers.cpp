// SPDX-License-Identifier: Apache-2.0
#include "measure/small_numbers.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "base/random.hpp"

namespace trireme::measure {

void fill_small_numbers(View to, device::Stream& stream) {
  TRIREME_EXPECT(to.dtype == DType::f32 || to.dtype == DType::bf16, "small numbers in {}",
                 name(to.dtype));
  constexpr std::uint32_t knuth = 2654435761U;  // 2^32 over the golden ratio: scatters the indices
  std::vector<float> values(static_cast<std::size_t>(to.elements));
  std::vector<Bf16> rounded(to.dtype == DType::bf16 ? values.size() : 0);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.25F - 0.5F * uniform(static_cast<std::uint32_t>(i) * knuth);
  for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] = Bf16(values[i]);
  stream.device().copy(to,
                       to.dtype == DType::bf16 ? ConstView(view_of(rounded.data(), to.elements))
                                               : ConstView(view_of(values.data(), to.elements)),
                       stream);
  stream.synchronize();
}

}  // namespace trireme::measure
