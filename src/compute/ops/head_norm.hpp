// SPDX-License-Identifier: Apache-2.0
// RMS normalization of each head of queries and keys, whose products are bounded by it, and their
// rotation (rotary.hpp) in the same pass:
//
//   y = rotate(x / sqrt(mean(x²) + epsilon) · gain)        of each head
//
// One gain serves all heads of queries and one all heads of keys, or there is none.
//
// Source: Henry et al. 2020, "Query-Key Normalization for Transformers"; with RMS and a gain as in
// Qwen3 (arXiv 2505.09388, section 2). Without gains it does not matter which of the two comes
// first, since turning leaves the mean square of a head as it is.
//
// 1. Both work in place. Backward reads x as it was, which forward keeps on request: it does not
//    follow from the outputs where a gain is zero.
// 2. Everything between reading and writing an element is fp32. A row does not depend on the
//    others; sums of the gains' gradients are cut by shape alone.
#pragma once

#include <cstdint>

#include "ops/operation.hpp"
#include "ops/rotary.hpp"

namespace trireme::ops {

/// What both directions are given. Of each packed row the first heads · D elements are normalized,
/// D = shape.head_channels, those of queries first.
struct HeadNorm {
  ConstView query_gain = {};  ///< [D] of T; optional, together with key_gain: 1
  ConstView key_gain = {};    ///< [D] of T
  ConstView table = {};       ///< as in Rotate; optional: no rotation
  ConstView positions = {};   ///< as in Rotate; of forward only
  RotaryShape shape;          ///< its heads are those of queries and of keys
  std::int64_t query_heads;   ///< of these, the first ones
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
  View rstd = {};  ///< [rows, heads] fp32, kept for backward; where there is a raw
  HeadNorm norm;
};
TRIREME_OPERATION(HeadNormForward);

/// Rows are those of whole sequences.
struct HeadNormBackward {
  static constexpr const char* name = "head_norm_backward";
  static constexpr bool uses_workspace = true;
  View d_packed;           ///< [rows, stride] of T: the gradient of the outputs, then of the inputs
  View d_query_gain = {};  ///< [D] fp32, added to; where there are gains
  View d_key_gain = {};    ///< the same
  ConstView raw;           ///< as forward left it
  ConstView rstd;          ///< as forward left it
  HeadNorm norm;
};
TRIREME_OPERATION(HeadNormBackward);

}  // namespace trireme::ops
