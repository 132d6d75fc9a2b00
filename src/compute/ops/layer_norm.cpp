// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {

void run(const LayerNormForward& call, device::Stream& stream) {
  const std::int64_t rows = call.rstd.elements, C = call.channels, n = rows * C;
  const DType type = call.x.dtype;
  TRIREME_EXPECT(rows >= 1 && C >= 1, "a norm of {} rows of {}", rows, C);
  expect_operands(call.name, {{"x", call.x, n, type},
                              {"y", call.y, n, type},
                              {"mean", call.mean, call.centers() ? rows : 0, DType::f32},
                              {"rstd", call.rstd, rows, DType::f32},
                              optional({"gamma", call.gamma, C, type}),
                              optional({"beta", call.beta, C, type}),
                              optional({"branch", call.branch, n, type}),
                              {"sum", call.sum, call.branch.elements, type}});
  TRIREME_EXPECT(call.rows_per_sample >= 1 && rows % call.rows_per_sample == 0,
                 "{} rows are not samples of {}", rows, call.rows_per_sample);
  expect_valid(call.dropout);
  enqueue(call, type, stream);
}

void run(const LayerNormBackward& call, device::Stream& stream) {
  const std::int64_t rows = call.rstd.elements, C = call.channels, n = rows * C;
  const DType type = call.x.dtype;
  TRIREME_EXPECT(rows >= 1 && C >= 1, "a norm of {} rows of {}", rows, C);
  expect_operands(call.name, {{"x", call.x, n, type},
                              {"dx", call.dx, n, type},
                              {"dy", call.dy, n, type},
                              {"mean", call.mean, call.centers() ? rows : 0, DType::f32},
                              {"rstd", call.rstd, rows, DType::f32},
                              optional({"gamma", call.gamma, C, type}),
                              {"dgamma", call.dgamma, call.gamma.elements, DType::f32},
                              optional({"dbeta", call.dbeta, C, DType::f32}),
                              optional({"dbias", call.dbias, C, DType::f32})});
  enqueue(call, type, stream);
}

}  // namespace trireme::ops
