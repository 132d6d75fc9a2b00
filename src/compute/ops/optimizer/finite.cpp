// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/finite.hpp"

#include <algorithm>
#include <array>

#include "ops/cpu/optimizer/finite.hpp"
#include "ops/cuda/reductions.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

void on_gpu(std::span<std::int64_t> first,
            std::span<const ConstView> values,
            device::Stream& stream,
            const GradientNorm* norm,
            auto raw) {
  std::array<cuda::Values, cuda::most_searched> listed;
  while (!values.empty()) {
    const auto now = values.first(std::min(values.size(), listed.size()));
    std::ranges::transform(now, listed.begin(), [](ConstView view) {
      return cuda::Values{view.as<float>(), view.elements};
    });
    cuda::find_not_finite(first.data(), std::span(listed).first(now.size()),
                          device::cuda::workspace_of(stream), device::cuda::counters_of(stream),
                          norm, raw);
    first = first.subspan(now.size());
    values = values.subspan(now.size());
  }
}

}  // namespace

void find_not_finite(std::span<std::int64_t> first,
                     std::span<const ConstView> values,
                     device::Stream& stream,
                     const GradientNorm* norm) {
  TRIREME_EXPECT(first.size() == values.size(), "{} places for findings in {} views", first.size(),
                 values.size());
  if (on_cuda(stream, [&](auto raw) { on_gpu(first, values, stream, norm, raw); }))
    return;
  for (std::size_t i = 0; i < values.size(); ++i)
    on_cpu(stream, "find_not_finite")
        .run([to = &first[i], from = values[i].as<float>(), n = values[i].elements, norm] {
          if (norm == nullptr || norm->finite == 0)
            *to = cpu::find_not_finite(from, n);
        });
}

}  // namespace trireme::ops
