// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.hpp"

#include "ops/cpu/cross_entropy.hpp"
#include "ops/cuda/cross_entropy.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

std::int64_t vocabulary_of(ConstView losses, ConstView logits, ConstView targets) {
  const std::int64_t rows = targets.elements;
  TRIREME_EXPECT(rows >= 1 && losses.elements == rows && logits.elements % rows == 0 &&
                     logits.elements >= rows,
                 "{} logits, {} targets, {} losses", logits.elements, rows, losses.elements);
  return logits.elements / rows;
}

void expect_valid(const LossTerms& terms) {
  TRIREME_EXPECT(terms.softcap >= 0 && terms.z_loss >= 0, "a cap of {} and a z-loss of {}",
                 terms.softcap, terms.z_loss);
}

}  // namespace

void cross_entropy_forward(View losses,
                           ConstView logits,
                           ConstView targets,
                           const LossTerms& terms,
                           device::Stream& stream) {
  const std::int64_t V = vocabulary_of(losses, logits, targets);
  expect_valid(terms);
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (on_cuda(stream, [&](auto raw) {
          cuda::cross_entropy_forward(losses.as<float>(), logits.as<T>(),
                                      targets.as<std::int32_t>(), terms, targets.elements, V, raw);
        }))
      return;
    on_cpu(stream, "cross_entropy_forward")
        .run([to = losses.as<float>(), from = logits.as<T>(), ids = targets.as<std::int32_t>(),
              terms, rows = targets.elements,
              V] { cpu::cross_entropy_forward(to, from, ids, terms, rows, V); });
  });
}

void cross_entropy_forward_backward(View losses,
                                    View d_logits,
                                    ConstView logits,
                                    ConstView targets,
                                    const LossTerms& terms,
                                    float scale,
                                    device::Stream& stream) {
  const std::int64_t V = vocabulary_of(losses, logits, targets);
  expect_valid(terms);
  TRIREME_EXPECT(d_logits.elements == logits.elements &&
                     (d_logits.dtype == logits.dtype || d_logits.dtype == DType::bf16),
                 "gradients of {} {} for logits of {} {}", d_logits.elements, name(d_logits.dtype),
                 logits.elements, name(logits.dtype));
  const auto run = [&](auto zero, auto gradient_zero) {
    using T = decltype(zero);
    using D = decltype(gradient_zero);
    if (on_cuda(stream, [&](auto raw) {
          cuda::cross_entropy_forward_backward(losses.as<float>(), d_logits.as<D>(), logits.as<T>(),
                                               targets.as<std::int32_t>(), terms, scale,
                                               targets.elements, V, raw);
        }))
      return;
    on_cpu(stream, "cross_entropy_forward_backward")
        .run([to = losses.as<float>(), gradient = d_logits.as<D>(), from = logits.as<T>(),
              ids = targets.as<std::int32_t>(), terms, scale, rows = targets.elements, V] {
          cpu::cross_entropy_forward_backward(to, gradient, from, ids, terms, scale, rows, V);
        });
  };
  with_float_type(logits.dtype, [&](auto zero) {
    if (d_logits.dtype == logits.dtype)
      run(zero, zero);
    else
      run(0.0F, Bf16{});
  });
}

void cap_logits(View logits, const LossTerms& terms, device::Stream& stream) {
  expect_valid(terms);
  TRIREME_EXPECT(logits.dtype == DType::f32, "capped logits of {}", name(logits.dtype));
  if (!terms.capped())
    return;
  if (on_cuda(stream, [&](auto raw) {
        cuda::cap_logits(logits.as<float>(), terms.softcap, logits.elements, raw);
      }))
    return;
  on_cpu(stream, "cap_logits")
      .run([to = logits.as<float>(), cap = terms.softcap, count = logits.elements] {
        cpu::cap_logits(to, cap, count);
      });
}

}  // namespace trireme::ops
