// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul.hpp"

#include "base/error.hpp"
#include "device/cuda/handle.hpp"

#include "ops/activations.hpp"
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
  throw DeviceError(device.description(), "matmul", "this build has the CPU's operations only",
                    __FILE__, __LINE__);
}

}  // namespace

Matmul::Matmul(device::Device& device, const MatmulShape& shape, const ProductOptions& options)
    : shape_(shape), implementation_(make(device, shape, options)) {}
Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&&) noexcept = default;
Matmul& Matmul::operator=(Matmul&&) noexcept = default;

double Matmul::flops() const {
  return 2.0 * static_cast<double>(shape_.m) * static_cast<double>(shape_.n) *
         static_cast<double>(shape_.k);
}

void Matmul::operator()(ConstView a, ConstView b, View c, device::Stream& stream) const {
  TRIREME_EXPECT(!shape_.bias, "a matmul with bias was called without one");
  (*this)(a, b, ConstView(), c, stream);
}

void Matmul::expect_operands(ConstView a, ConstView b, ConstView bias, View c) const {
  const auto& s = shape_;
  TRIREME_EXPECT(a.elements == s.m * s.k && a.dtype == s.a, "A is {} {}, not {} x {} {}",
                 a.elements, name(a.dtype), s.m, s.k, name(s.a));
  TRIREME_EXPECT(b.elements == s.k * s.n && b.dtype == s.b, "B is {} {}, not {} x {} {}",
                 b.elements, name(b.dtype), s.k, s.n, name(s.b));
  TRIREME_EXPECT(c.elements == s.m * s.n && c.dtype == s.c, "C is {} {}, not {} x {} {}",
                 c.elements, name(c.dtype), s.m, s.n, name(s.c));
  TRIREME_EXPECT(bias.elements == (s.bias ? s.n : 0) && (!s.bias || bias.dtype == s.b),
                 "the bias is {} {}, not {} {}", bias.elements, name(bias.dtype), s.bias ? s.n : 0,
                 name(s.b));
}

void Matmul::operator()(
    ConstView a, ConstView b, ConstView bias, View c, device::Stream& stream) const {
  TRIREME_EXPECT(shape_.epilogue == Epilogue::none, "a matmul with an epilogue was called {}",
                 "without its second matrix");
  expect_operands(a, b, bias, c);
  implementation_->run(a.data, b.data, shape_.bias ? bias.data : nullptr, c.data, stream);
}

void Matmul::operator()(
    ConstView a, ConstView b, ConstView bias, View z, View c, device::Stream& stream) const {
  TRIREME_EXPECT(shape_.epilogue != Epilogue::none, "a matmul without an epilogue was called {}",
                 "with a second matrix");
  expect_operands(a, b, bias, c);
  TRIREME_EXPECT(z.elements == c.elements && z.dtype == c.dtype, "Z is {} {}, C is {} {}",
                 z.elements, name(z.dtype), c.elements, name(c.dtype));
  const std::byte* added = shape_.bias ? bias.data : nullptr;
  if (!implementation_->run_epilogue(a.data, b.data, added, z.data, c.data, stream))
    implementation_->run_apart(shape_, a.data, b.data, added, z.data, c.data, stream);
}

void Matmul::with_row_sums(
    ConstView a, ConstView b, View c, View sums, device::Stream& stream) const {
  TRIREME_EXPECT(shape_.row_sums, "a matmul without row sums was called {}", "for them");
  TRIREME_EXPECT(sums.elements == shape_.m && sums.dtype == DType::f32,
                 "the sums are {} {}, not {} f32", sums.elements, name(sums.dtype), shape_.m);
  expect_operands(a, b, {}, c);
  if (implementation_->run_row_sums(a.data, b.data, c.data, sums, stream))
    return;
  implementation_->run(a.data, b.data, nullptr, c.data, stream);
  ops::run(BiasBackward{.db = sums, .dy = a}, stream);
}

bool Matmul::fuses_epilogue() const {
  return implementation_->fuses_epilogue();
}

bool Matmul::sums_rows() const {
  return implementation_->sums_rows();
}

void Matmul::Implementation::run_apart(const MatmulShape& shape,
                                       const std::byte* a,
                                       const std::byte* b,
                                       const std::byte* bias,
                                       std::byte* z,
                                       std::byte* c,
                                       device::Stream& stream) {
  const View into(z, shape.m * shape.n, shape.c), result(c, shape.m * shape.n, shape.c);
  if (shape.epilogue == Epilogue::gelu) {
    run(a, b, bias, z, stream);
    ops::run(GeluForward{.y = result, .x = into}, stream);
  } else {
    run(a, b, bias, c, stream);
    ops::run(GeluBackward{.dx = result, .dy = result, .x = into}, stream);
  }
}

}  // namespace trireme::ops
