// SPDX-License-Identifier: Apache-2.0
// Calls of layer_norm.hpp; T is float or Bf16. Gains, biases and their gradients may be null, and
// so may `mean`: then nothing is subtracted from a row (RMS normalization).
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

#include "ops/calls/call.hpp"
#include "ops/dropout.hpp"

namespace trireme::ops {

/// Of x itself, or of the rows of x + dropout(branch), each of which is stored in `sum` (which may
/// be x) before it is normalized: what counts is the rounded value.
template <class T>
struct LayerNormForward {
  static constexpr const char* name = "layer_norm_forward";
  T* y;
  float* mean;
  float* rstd;
  const T* x;
  const T* gamma;
  const T* beta;
  std::int64_t rows, channels;
  float epsilon;
  const T* branch = nullptr;  ///< null: nothing is added
  T* sum = nullptr;
  std::int64_t rows_per_sample = 1;  ///< for the mask
  Dropout dropout{};

  /// Where the rows lie when they are normalized.
  [[nodiscard]] TRIREME_HOST_DEVICE const T* normalized() const {
    return branch == nullptr ? x : sum;
  }
};

/// The gradients of gains and biases are sums over rows, cut by shape alone and added in order.
template <class T>
struct LayerNormBackward {
  static constexpr const char* name = "layer_norm_backward";
  static constexpr bool uses_workspace = true;
  T* dx;
  float* dgamma;
  float* dbeta;
  float* dbias;
  const T* dy;
  const T* x;
  const T* gamma;
  const float* mean;
  const float* rstd;
  std::int64_t rows, channels;
  bool accumulate;

  /// 0 where rows are not centered.
  [[nodiscard]] TRIREME_HOST_DEVICE float mean_of(std::int64_t row) const {
    return mean != nullptr ? mean[row] : 0.0F;
  }
};

namespace cpu {
template <class T>
void run(Threads, const LayerNormForward<T>& call);
template <class T>
void run(Threads, const LayerNormBackward<T>& call);
}  // namespace cpu

namespace cuda {
template <class T>
void run(const Queue& queue, const LayerNormForward<T>& call);
template <class T>
void run(const Queue& queue, const LayerNormBackward<T>& call);
}  // namespace cuda

}  // namespace trireme::ops
