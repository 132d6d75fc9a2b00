// SPDX-License-Identifier: Apache-2.0
// Layer normalization and RMS normalization over the last axis, in one pass over memory. Forward
// can first add a branch to the residual stream.
//
//   layer norm   y = (x - mean(x)) / sqrt(mean((x - mean(x))²) + epsilon) · gamma + beta
//   RMS norm     y = x / sqrt(mean(x²) + epsilon) · gamma + beta
//
// Sources: Ba, Kiros, Hinton 2016, eq. 3-4; Zhang, Sennrich 2019, eq. 4.
#pragma once

#include <cstdint>

#include "ops/dropout.hpp"
#include "ops/operation.hpp"

namespace trireme::ops {

/// Whether the mean of a row is subtracted from it.
enum class NormKind : std::uint8_t { layer, rms };

/// With a branch, the normalized rows are sum = x + dropout(branch). The bits are those of
/// normalizing the stored sum, rounded to T, without a branch.
struct LayerNormForward {
  static constexpr const char* name = "layer_norm_forward";
  NormKind kind = NormKind::layer;
  View y;                ///< [rows, channels] of T
  View mean = {};        ///< [rows] fp32, kept for backward; of layer norm only
  View rstd;             ///< [rows] fp32: 1 / the square root, kept for backward
  ConstView x;           ///< [rows, channels] of T
  ConstView gamma = {};  ///< [channels] of T; optional: 1
  ConstView beta = {};   ///< [channels] of T; optional: 0
  std::int64_t channels;
  float epsilon;

  ConstView branch = {};             ///< [rows, channels] of T; optional: nothing is added
  View sum = {};                     ///< [rows, channels] of T, with a branch; may be x
  std::int64_t rows_per_sample = 1;  ///< rows of the branch that are one sample of the mask
  Dropout dropout = {};              ///< of the branch

  [[nodiscard]] TRIREME_HOST_DEVICE std::int64_t rows() const { return rstd.elements; }
  [[nodiscard]] TRIREME_HOST_DEVICE bool centers() const { return kind == NormKind::layer; }
  template <class T>
  [[nodiscard]] TRIREME_HOST_DEVICE const T* normalized() const {
    return branch.empty() ? x.as<T>() : sum.as<T>();
  }
};
TRIREME_OPERATION(LayerNormForward);

/// The gradients of gamma and beta are sums over rows: divided by shape alone, added in order. With
/// `accumulate`, the norm's gradient is added to that of a residual stream. The result is also the
/// branch's gradient, except for dropout (DropoutBackward of elementwise.hpp).
struct LayerNormBackward {
  static constexpr const char* name = "layer_norm_backward";
  static constexpr bool uses_workspace = true;
  NormKind kind = NormKind::layer;
  View dx;           ///< [rows, channels] of T; may be dy
  View dgamma = {};  ///< [channels] fp32, added to; where there is a gamma
  View dbeta = {};   ///< [channels] fp32, added to; optional
  /// [channels] fp32, added to; optional: the sums of dx over the rows. If x is a linear layer's
  /// output plus something else, this is the gradient of its bias, and no BiasBackward is needed.
  View dbias = {};
  ConstView dy;          ///< [rows, channels] of T
  ConstView x;           ///< [rows, channels] of T: the rows that forward normalized
  ConstView gamma = {};  ///< as in forward, like the two that follow
  ConstView mean = {};
  ConstView rstd;
  std::int64_t channels;
  bool accumulate = false;  ///< dx += the gradient instead of dx = the gradient

  [[nodiscard]] TRIREME_HOST_DEVICE std::int64_t rows() const { return rstd.elements; }
  [[nodiscard]] TRIREME_HOST_DEVICE bool centers() const { return kind == NormKind::layer; }
  [[nodiscard]] TRIREME_HOST_DEVICE float mean_of(std::int64_t row) const {
    return centers() ? mean.as<float>()[row] : 0.0F;
  }
};
TRIREME_OPERATION(LayerNormBackward);

}  // namespace trireme::ops
