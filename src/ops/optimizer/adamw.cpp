// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/adamw.hpp"

#include <algorithm>
#include <array>

#include "ops/cpu/optimizer/adamw.hpp"
#include "ops/cuda/adamw.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

void expect_equal_sizes(const AdamwPiece& p) {
  const std::int64_t n = p.parameter.elements;
  TRIREME_EXPECT(
      p.master.elements == n && p.m.elements == n && p.v.elements == n && p.gradient.elements == n,
      "{} parameters, {} masters, {} and {} moments, {} gradients", n, p.master.elements,
      p.m.elements, p.v.elements, p.gradient.elements);
}

template <class T, class M>
void on_gpu(std::span<const AdamwPiece> pieces, const GradientNorm& norm, auto raw) {
  std::array<cuda::AdamwRange<T, M>, cuda::most_adamw_ranges> ranges;
  while (!pieces.empty()) {
    const auto now = pieces.first(std::min(pieces.size(), ranges.size()));
    std::ranges::transform(now, ranges.begin(), [](const AdamwPiece& p) {
      return cuda::AdamwRange<T, M>{
          p.parameter.as<T>(),    p.master.as<float>(), p.m.as<M>(), p.v.as<M>(),
          p.gradient.as<float>(), p.parameter.elements, p.step,      p.rounding};
    });
    cuda::adamw(std::span<const cuda::AdamwRange<T, M>>(ranges).first(now.size()), &norm, raw);
    pieces = pieces.subspan(now.size());
  }
}

template <class T, class M>
void on_host(const AdamwPiece& p, const GradientNorm& norm, device::Stream& stream) {
  on_cpu(stream, "adamw")
      .run([to = p.parameter.as<T>(), exact = p.master.as<float>(), first = p.m.as<M>(),
            second = p.v.as<M>(), from = p.gradient.as<float>(), step = p.step,
            rounding = p.rounding, norm = &norm, n = p.parameter.elements] {
        if (norm->finite != 0)
          cpu::adamw(to, exact, first, second, from, step, rounding, norm->scale, n);
      });
}

}  // namespace

void adamw(std::span<const AdamwPiece> pieces, const GradientNorm& norm, device::Stream& stream) {
  std::ranges::for_each(pieces, expect_equal_sizes);
  if (pieces.empty())
    return;
  with_float_type(pieces.front().parameter.dtype, [&](auto parameter_zero) {
    with_float_type(pieces.front().m.dtype, [&](auto moment_zero) {
      using T = decltype(parameter_zero);
      using M = decltype(moment_zero);
      if (on_cuda(stream, [&](auto raw) { on_gpu<T, M>(pieces, norm, raw); }))
        return;
      for (const AdamwPiece& piece : pieces) on_host<T, M>(piece, norm, stream);
    });
  });
}

}  // namespace trireme::ops
