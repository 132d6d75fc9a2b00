// SPDX-License-Identifier: Apache-2.0
// The operands of attention.hpp, apart from it: kernels include them, and nvcc takes long over the
// headers of devices.
#pragma once

#include "base/view.hpp"

#include "ops/dropout.hpp"

namespace trireme::ops {

/// Of one dtype are qkv, out and their gradients: the shape's.
struct AttentionForward {
  View out;  ///< [B, T, H, D]
  View lse;  ///< [B, H, T] fp32: the log of each row's sum of exponentials, kept for backward
  /// [B, T, H + 2 G, D]: all queries, then all keys, then all values, with G heads of keys and
  /// values.
  ConstView qkv;
  ConstView starts = {};  ///< [B, T] int32; where the shape has documents
  Dropout dropout = {};
};

struct AttentionBackward {
  View dqkv;       ///< as qkv; overwritten
  ConstView dout;  ///< as out
  ConstView qkv;   ///< as in forward, like all that follow
  ConstView out;
  ConstView lse;
  ConstView starts = {};
  Dropout dropout = {};
};

}  // namespace trireme::ops
