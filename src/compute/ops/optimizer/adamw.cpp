// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/adamw.hpp"

#include <algorithm>

#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

void expect_range(const Adamw& call) {
  const std::int64_t n = call.parameter.elements;
  expect_operands(call.name, {{"master", call.master, n, DType::f32},
                              {"m", call.m, n, call.m.dtype},
                              {"v", call.v, n, call.m.dtype},
                              {"gradient", call.gradient, n, DType::f32}});
  with_float_type(call.m.dtype, [](auto) {});
}

}  // namespace

void run(const Adamw& call, device::Stream& stream) {
  run(std::span(&call, 1), stream);
}

void run(std::span<const Adamw> ranges, device::Stream& stream) {
  std::ranges::for_each(ranges, expect_range);
  if (ranges.empty())
    return;
  with_float_type(ranges.front().parameter.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (on_cuda(stream, [&](auto raw) {
          for (auto rest = ranges; !rest.empty();) {
            const auto now = rest.first(std::min(rest.size(), cuda::most_adamw_ranges));
            cuda::run<T>(cuda::Queue{raw}, now);
            rest = rest.subspan(now.size());
          }
        }))
      return;
    for (const Adamw& range : ranges) enqueue_on_cpu<T>(range, stream);
  });
}

}  // namespace trireme::ops
