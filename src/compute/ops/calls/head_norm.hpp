// SPDX-License-Identifier: Apache-2.0
// Calls of head_norm.hpp; T is float or Bf16.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

#include "ops/calls/call.hpp"

namespace trireme::ops {

/// What both directions work on.
template <class T>
struct HeadNormRows {
  const T* query_gain;  ///< null: no gains
  const T* key_gain;
  const float* table;             ///< null: nothing turns
  const std::int32_t* positions;  ///< null: those of whole sequences
  std::int64_t rows, time, heads, query_heads;
  std::int64_t channels;  ///< of a head
  std::int64_t stride;    ///< elements of a packed row
  float epsilon;

  [[nodiscard]] TRIREME_HOST_DEVICE const T* gain_of(std::int64_t head) const {
    return head < query_heads ? query_gain : key_gain;
  }
  /// Cosines; sines lie channels / 2 after them.
  [[nodiscard]] TRIREME_HOST_DEVICE const float* angles_of(std::int64_t row) const {
    return table + (positions != nullptr ? positions[row] : row % time) * channels;
  }
};

/// Null `raw` and `rstd`: nothing is kept.
template <class T>
struct HeadNormForward {
  static constexpr const char* name = "head_norm_forward";
  T* packed;
  T* raw;
  float* rstd;
  HeadNormRows<T> all;
};

/// Null gradients of gains: there are none. They are sums over rows, in a fixed order.
template <class T>
struct HeadNormBackward {
  static constexpr const char* name = "head_norm_backward";
  static constexpr bool uses_workspace = true;
  T* d_packed;
  float* d_query_gain;
  float* d_key_gain;
  const T* raw;
  const float* rstd;
  HeadNormRows<T> all;
};

namespace cpu {
template <class T>
void run(Threads, const HeadNormForward<T>& call);
template <class T>
void run(Threads, const HeadNormBackward<T>& call);
}  // namespace cpu

namespace cuda {
template <class T>
void run(const Queue& queue, const HeadNormForward<T>& call);
template <class T>
void run(const Queue& queue, const HeadNormBackward<T>& call);
}  // namespace cuda

}  // namespace trireme::ops
