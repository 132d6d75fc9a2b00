// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/adamw.hpp"

#include <algorithm>
#include <array>

#include "ops/calls/adamw.hpp"
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
AdamwRange<T, M> range_of(const AdamwPiece& p) {
  return {p.parameter.as<T>(),    p.master.as<float>(), p.m.as<M>(), p.v.as<M>(),
          p.gradient.as<float>(), p.parameter.elements, p.step,      p.rounding};
}

template <class T, class M>
void on_gpu(std::span<const AdamwPiece> pieces, const GradientNorm& norm, auto raw) {
  std::array<AdamwRange<T, M>, cuda::most_adamw_ranges> ranges;
  while (!pieces.empty()) {
    const auto now = pieces.first(std::min(pieces.size(), ranges.size()));
    std::ranges::transform(now, ranges.begin(), range_of<T, M>);
    run(cuda::Queue{raw}, std::span<const AdamwRange<T, M>>(ranges).first(now.size()), &norm);
    pieces = pieces.subspan(now.size());
  }
}

template <class T, class M>
void on_host(const AdamwPiece& piece, const GradientNorm& norm, device::Stream& stream) {
  using Range = AdamwRange<T, M>;
  on_cpu(stream, Range::name).run([range = range_of<T, M>(piece), norm = &norm] {
    if (norm->finite != 0)
      run(cpu::Threads{}, range, norm->scale);
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
