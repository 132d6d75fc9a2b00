// SPDX-License-Identifier: Apache-2.0
// The operands of attention.hpp, in a header of their own for kernels, because nvcc takes long to
// compile the headers of devices.
#pragma once

#include "base/view.hpp"

#include "ops/dropout.hpp"

namespace trireme::ops {

/// qkv, out and their gradients have the shape's dtype.
struct AttentionForward {
  View out;  ///< [B, T, H, D]
  View lse;  ///< [B, H, T] fp32: the log of each row's sum of exponentials, kept for backward
  /// [B, T, H + 2 G, D]: all queries, then all keys, then all values; G is the number of key and
  /// value heads.
  ConstView qkv;
  ConstView starts = {};  ///< [B, T] int32; if the shape has documents
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
