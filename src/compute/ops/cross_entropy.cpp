// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

void expect_valid(const LossTerms& terms) {
  TRIREME_EXPECT(terms.softcap >= 0 && terms.z_loss >= 0, "a cap of {} and a z-loss of {}",
                 terms.softcap, terms.z_loss);
}

}  // namespace

void run(const CrossEntropy& call, device::Stream& stream) {
  const std::int64_t rows = call.targets.elements;
  TRIREME_EXPECT(rows >= 1 && call.logits.elements >= rows && call.logits.elements % rows == 0,
                 "{} logits for {} targets", call.logits.elements, rows);
  const bool narrow = call.d_logits.dtype == DType::bf16;
  expect_operands(call.name, {{"losses", call.losses, rows, DType::f32},
                              {"targets", call.targets, rows, DType::i32},
                              optional({"d_logits", call.d_logits, call.logits.elements,
                                        narrow ? DType::bf16 : call.logits.dtype})});
  expect_valid(call.terms);
  enqueue(call, call.logits.dtype, stream);
}

void run(const CapLogits& call, device::Stream& stream) {
  expect_valid(call.terms);
  expect_operands(call.name, {{"logits", call.logits, call.logits.elements, DType::f32}});
  if (call.terms.capped())
    enqueue<float>(call, stream);
}

}  // namespace trireme::ops
