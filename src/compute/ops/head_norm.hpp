// SPDX-License-Identifier: Apache-2.0
// RMS normalization of each head of queries and keys, which bounds their products, and their
// rotation (rotary.hpp) in the same pass:
//
//   y = rotate(x / sqrt(mean(x²) + epsilon) · gain)        of each head
//
// One gain serves all heads of queries and one all heads of keys, or there is none.
// Source: Henry et al. 2020, "Query-Key Normalization for Transformers"; with RMS and a gain as in
// Qwen3 (arXiv 2505.09388, section 2). Without gains, norm and rotation commute, because rotation
// preserves the mean square of a head.
// 1. Both work in place. Backward reads the original x, which forward stores on request: it cannot
//    be recovered from the outputs if a gain is zero.
// 2. Intermediate values are fp32. A row does not depend on the others. The division of the sums
//    for the gains' gradients depends only on the shape.
#pragma once

#include <cstdint>

#include "ops/operation.hpp"
#include "ops/rotary.hpp"

namespace trireme::ops {

/// Arguments of both directions. The first heads · D elements of each packed row are normalized, D
/// = shape.head_channels; heads of queries come first.
struct HeadNorm {
  ConstView query_gain = {};  ///< [D] of T; optional, together with key_gain: 1
  ConstView key_gain = {};    ///< [D] of T
  ConstView table = {};       ///< as in Rotate; optional: no rotation
  ConstView positions = {};   ///< as in Rotate; forward only
  RotaryShape shape;          ///< its heads are those of queries and of keys
  std::int64_t query_heads;   ///< the first ones of these
  float epsilon;

  [[nodiscard]] TRIREME_HOST_DEVICE std::int64_t heads() const { return shape.heads; }
  [[nodiscard]] TRIREME_HOST_DEVICE std::int64_t channels() const { return shape.head_channels; }
  template <class T>
  [[nodiscard]] TRIREME_HOST_DEVICE const T* gain_of(std::int64_t head) const {
    return head < query_heads ? query_gain.as_optional<T>() : key_gain.as_optional<T>();
  }
  /// Cosines; sines are D / 2 after them. Null: no rotation.
  [[nodiscard]] TRIREME_HOST_DEVICE const float* angles_of(std::int64_t row) const {
    return table.empty() ? nullptr : ops::angles_of(row, table, positions, shape);
  }
};

struct HeadNormForward {
  static constexpr const char* name = "head_norm_forward";
  View packed;     ///< [rows, stride] of T
  View raw = {};   ///< [rows, heads, D] of T: x, kept for backward; optional
  View rstd = {};  ///< [rows, heads] fp32, kept for backward; together with raw
  HeadNorm norm;
};
TRIREME_OPERATION(HeadNormForward);

/// The rows are whole sequences.
struct HeadNormBackward {
  static constexpr const char* name = "head_norm_backward";
  static constexpr bool uses_workspace = true;
  View d_packed;           ///< [rows, stride] of T: the gradient of the outputs, then of the inputs
  View d_query_gain = {};  ///< [D] fp32, added to; where there are gains
  View d_key_gain = {};    ///< the same
  ConstView raw;           ///< as written by forward
  ConstView rstd;          ///< as written by forward
  HeadNorm norm;
};
TRIREME_OPERATION(HeadNormBackward);

}  // namespace trireme::ops
