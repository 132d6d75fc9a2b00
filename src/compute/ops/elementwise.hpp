// SPDX-License-Identifier: Apache-2.0
// Single passes over memory: dropout backwards, bias gradients, sums, casts. Arithmetic is fp32.
#pragma once

#include <cstdint>

#include "ops/dropout.hpp"
#include "ops/operation.hpp"

namespace trireme::ops {

/// The gradient of a branch that was added after dropout (layer_norm.hpp): dbranch = dy times the
/// same mask. Without dropout it is a copy.
struct DropoutBackward {
  static constexpr const char* name = "dropout_backward";
  View dbranch;                      ///< [samples, elements_per_sample] of T
  ConstView dy;                      ///< the same
  std::int64_t elements_per_sample;  ///< of a sample of the mask
  Dropout dropout = {};
};
TRIREME_OPERATION(DropoutBackward);

/// db[n] += the sum over rows of dy[row, n]. Rows are cut by shape alone and added in a fixed
/// order.
struct BiasBackward {
  static constexpr const char* name = "bias_backward";
  static constexpr bool uses_workspace = true;
  View db;       ///< [columns] fp32
  ConstView dy;  ///< [rows, columns] of T

  [[nodiscard]] std::int64_t rows() const { return dy.elements / db.elements; }
};
TRIREME_OPERATION(BiasBackward);

/// sum += term.
struct Add {
  static constexpr const char* name = "add";
  View sum;        ///< fp32
  ConstView term;  ///< fp32, as many elements; may be sum
};
TRIREME_OPERATION(Add);

/// to = from, converted; to nearest even where `to` has the narrower type.
struct Cast {
  static constexpr const char* name = "cast";
  View to;         ///< of T
  ConstView from;  ///< as many elements, fp32 or bf16
};
TRIREME_OPERATION(Cast);

}  // namespace trireme::ops
