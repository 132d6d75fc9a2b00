// SPDX-License-Identifier: Apache-2.0
// RMS normalization of each head of queries and keys, whose products are bounded by it, and their
// rotation (rotary.hpp) in the same pass:
//
//   y = turn(x / sqrt(mean(x²) + epsilon) · gain)        of each head
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
//
// Shapes: packed, d_packed = [rows, stride] of T, of whose rows the first heads · D elements are
// normalized, those of queries first; raw = [rows, heads · D] of T; rstd = [rows, heads] fp32;
// gains = [D] of T, both empty: none; their gradients = [D] fp32, added to; table and positions as
// in rotary.hpp, table empty: nothing turns.
#pragma once

#include <cstdint>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/rotary.hpp"

namespace trireme::ops {

struct HeadNormShape {
  RotaryShape rows{};            ///< heads: those of queries and of keys
  std::int64_t query_heads = 0;  ///< of them; the first ones
  float epsilon = 0;
};

/// `raw` and `rstd` may be empty, both: nothing is kept.
void head_norm_forward(View packed,
                       View raw,
                       View rstd,
                       ConstView query_gain,
                       ConstView key_gain,
                       ConstView table,
                       ConstView positions,
                       const HeadNormShape& shape,
                       device::Stream& stream);

/// d_packed: the gradient of the outputs, then that of the inputs. Rows are those of whole
/// sequences.
void head_norm_backward(View d_packed,
                        View d_query_gain,
                        View d_key_gain,
                        ConstView raw,
                        ConstView rstd,
                        ConstView query_gain,
                        ConstView key_gain,
                        ConstView table,
                        const HeadNormShape& shape,
                        device::Stream& stream);

}  // namespace trireme::ops
