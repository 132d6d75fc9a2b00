// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul.hpp"

#include "base/error.hpp"
#include "device/cuda/handle.hpp"

#include "ops/activations.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::ops {
namespace {

std::unique_ptr<Matmul::Implementation> make(device::Device& device,
                                             const MatmulShape& shape,
                                             const ProductOptions& options) {
  TRIREME_EXPECT(shape.m >= 1 && shape.n >= 1 && shape.k >= 1, "a matmul of {} x {} x {}", shape.m,
                 shape.n, shape.k);
  TRIREME_EXPECT(!shape.accumulate || shape.c == DType::f32, "accumulation in {}", name(shape.c));
  TRIREME_EXPECT(!shape.accumulate || shape.epilogue == Epilogue::none, "accumulation after an {}",
                 "epilogue");
  TRIREME_EXPECT(!shape.bias || shape.epilogue != Epilogue::gelu_backward,
                 "a bias in the backward pass of a {}", "GELU");
  TRIREME_EXPECT(!shape.row_sums || (shape.a_transposed && shape.accumulate), "{} of rows of an {}",
                 "sums", "operand that is not transposed, or without accumulation");
  if (device.kind() == device::Kind::cpu)
    return make_matmul_cpu(shape);
  if constexpr (device::cuda::in_this_build)
    return make_matmul_cuda(device, shape, options);
  throw DeviceError(device.description(), "matmul", "this build has the CPU's operations only");
}

}  // namespace

Matmul::Matmul(device::Device& device, const MatmulShape& shape, const ProductOptions& options)
    : shape_(shape), implementation_(make(device, shape, options)) {}
Matmul::~Matmul() = default;

void Matmul::operator()(const MatmulCall& call, device::Stream& stream) const {
  const MatmulShape& s = shape_;
  const bool epilogue = s.epilogue != Epilogue::none;
  expect_operands("matmul",
                  {{"A", call.a, s.m * s.k, s.a},
                   {"B", call.b, s.k * s.n, s.b},
                   {"the bias", call.bias, s.bias ? s.n : 0, s.b},
                   {"Z", call.z, epilogue ? s.m * s.n : 0, s.c},
                   {"C", call.c, s.m * s.n, s.c},
                   optional({"row_sums", call.row_sums, s.row_sums ? s.m : 0, DType::f32})});
  if (epilogue) {
    if (!implementation_->run_epilogue(call, stream))
      implementation_->run_apart(s, call, stream);
  } else if (call.row_sums.empty()) {
    implementation_->run(call, stream);
  } else if (!implementation_->run_row_sums(call, stream)) {
    implementation_->run(call, stream);
    ops::run(BiasBackward{.db = call.row_sums, .dy = call.a}, stream);
  }
}

bool Matmul::fuses_epilogue() const {
  return implementation_->fuses_epilogue();
}

bool Matmul::sums_rows() const {
  return implementation_->sums_rows();
}

double Matmul::run_blocks(std::int64_t count) const {
  return implementation_->run_blocks(count);
}

void Matmul::Implementation::run_apart(const MatmulShape& shape,
                                       const MatmulCall& call,
                                       device::Stream& stream) {
  MatmulCall product = call;
  if (shape.epilogue == Epilogue::gelu) {
    product.c = call.z;
    run(product, stream);
    ops::run(ActivationForward{.y = call.c, .x = call.z}, stream);
  } else {
    run(product, stream);
    ops::run(ActivationBackward{.dx = call.c, .dy = call.c, .x = call.z}, stream);
  }
}

}  // namespace trireme::ops
