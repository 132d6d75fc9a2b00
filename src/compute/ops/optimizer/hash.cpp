// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/hash.hpp"

#include "ops/cpu/optimizer/hash.hpp"
#include "ops/cuda/reductions.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
void hash_elements(std::uint64_t& hash, ConstView values, device::Stream& stream) {
  const std::size_t width = size_bytes(values.dtype);
  TRIREME_EXPECT(width == 2 || width == 4, "a hash of {}", name(values.dtype));
  if (on_cuda(stream, [&](auto raw) {
        cuda::hash_elements(&hash, values.data, width, values.elements,
                            device::cuda::workspace_of(stream), raw);
      }))
    return;
  on_cpu(stream, "hash_elements").run([to = &hash, values] { *to = cpu::hash_elements(values); });
}

}  // namespace trireme::ops
