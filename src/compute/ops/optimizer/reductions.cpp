// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/reductions.hpp"

#include <algorithm>
#include <array>

#include "ops/cpu/optimizer/reductions.hpp"
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
                          device::cuda::workspace_of(stream), norm, raw);
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
          *to = norm == nullptr || norm->finite == 0 ? cpu::find_not_finite(from, n) : -1;
        });
}

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

void gradient_norm(GradientNorm& norm,
                   ConstView squares,
                   const Clipping& clipping,
                   device::Stream& stream) {
  TRIREME_EXPECT(squares.elements == 1, "{} sums of squares", squares.elements);
  const auto* from = squares.as<double>();
  if (on_cuda(stream, [&](auto raw) { cuda::gradient_norm(&norm, from, clipping, raw); }))
    return;
  on_cpu(stream, "gradient_norm").run([to = &norm, from, clipping] {
    *to = norm_and_scale(*from, clipping);
  });
}

}  // namespace trireme::ops
