// SPDX-License-Identifier: Apache-2.0
// Single passes over memory: dropout backward, bias gradients, sums, casts, and the starts of
// documents. Arithmetic is fp32.
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

/// db[n] += the sum over rows of dy[row, n]. The division of rows depends only on the shape, and
/// parts are added in a fixed order.
struct BiasBackward {
  static constexpr const char* name = "bias_backward";
  static constexpr bool uses_workspace = true;
  View db;       ///< [columns] fp32
  ConstView dy;  ///< [rows, columns] of T

  [[nodiscard]] std::int64_t rows() const { return dy.elements / db.elements; }
};
TRIREME_OPERATION(BiasBackward);

/// sum += factor * term.
struct Add {
  static constexpr const char* name = "add";
  View sum;        ///< fp32
  ConstView term;  ///< fp32, as many elements; may be sum
  float factor = 1;
};
TRIREME_OPERATION(Add);

/// to = factor · from, converted; rounded to nearest even if `to` has the narrower type.
struct Cast {
  static constexpr const char* name = "cast";
  View to;         ///< of T; may be from, if that is of T
  ConstView from;  ///< as many elements, fp32 or bf16
  float factor = 1;
};
TRIREME_OPERATION(Cast);

/// GPU only: sets every row of c to the bias, or adds it, for products whose library cannot.
struct SpreadBias {
  static constexpr const char* name = "spread_bias";
  View c;          ///< [rows, columns] of T
  ConstView bias;  ///< [columns], fp32 or bf16
  bool accumulate;
};
TRIREME_BODIES(SpreadBias);

/// The start of each position's document, which is the first key that a query sees if attention is
/// restricted to documents. A separator token begins each document. Tokens before the first one in
/// a row belong to a document that began before the row.
///   starts[b, t] = the last position u <= t with tokens[b, u] = token, or 0 where there is none
///
/// starts[b, t] <= t, and starts never decrease along a row: attention relies on both.
struct DocumentStarts {
  static constexpr const char* name = "document_starts";
  View starts;        ///< [batch, time] int32
  ConstView tokens;   ///< [batch, time] int32
  std::int64_t time;  ///< positions of a row
  std::int32_t token;
};
TRIREME_OPERATION(DocumentStarts);

}  // namespace trireme::ops
