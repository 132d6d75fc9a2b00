// SPDX-License-Identifier: Apache-2.0
// What head norms work on, for the bodies of both devices: pointers and sizes of head_norm.hpp. It
// is passed by value to kernels, so it owns nothing.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace trireme::ops {

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

}  // namespace trireme::ops
