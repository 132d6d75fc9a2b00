// SPDX-License-Identifier: Apache-2.0
// How a matrix is orthogonalized (ops/optimizer/orthogonalize.hpp), as the deck and the rules of an
// optimizer give it.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace trireme::ops {

/// newton_schulz: the same polynomial in every step. polar_express: one for each of five steps,
/// chosen for the spectrum that the step before leaves; steps after the fifth repeat its.
enum class Coefficients : std::uint8_t { newton_schulz, polar_express };

struct OrthogonalizeOptions {
  std::int64_t steps = 5;
  Coefficients coefficients = Coefficients::newton_schulz;
  DType products = DType::f32;  ///< of the operands and results of products; or bf16
};

}  // namespace trireme::ops
