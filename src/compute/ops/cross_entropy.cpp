// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.hpp"

#include "ops/calls/cross_entropy.hpp"
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
    enqueue(CrossEntropyForward<T>{losses.as<float>(), logits.as<T>(), targets.as<std::int32_t>(),
                                   terms, targets.elements, V},
            stream);
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
  const auto enqueue_for = [&](auto zero, auto gradient_zero) {
    using T = decltype(zero);
    using D = decltype(gradient_zero);
    enqueue(CrossEntropyForwardBackward<T, D>{losses.as<float>(), d_logits.as<D>(), logits.as<T>(),
                                              targets.as<std::int32_t>(), terms, scale,
                                              targets.elements, V},
            stream);
  };
  with_float_type(logits.dtype, [&](auto zero) {
    if (d_logits.dtype == logits.dtype)
      enqueue_for(zero, zero);
    else
      enqueue_for(0.0F, Bf16{});
  });
}

void cap_logits(View logits, const LossTerms& terms, device::Stream& stream) {
  expect_valid(terms);
  TRIREME_EXPECT(logits.dtype == DType::f32, "capped logits of {}", name(logits.dtype));
  if (!terms.capped())
    return;
  enqueue(CapLogits{logits.as<float>(), terms, logits.elements}, stream);
}

}  // namespace trireme::ops
