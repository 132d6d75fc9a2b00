// SPDX-License-Identifier: Apache-2.0
// What a layer norm normalizes, for the bodies of both devices.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

#include "ops/dropout.hpp"

namespace trireme::ops {

/// x itself, or the rows of x + dropout(branch), each of which is stored in `sum` (which may be x)
/// before it is normalized: what counts is the rounded value. All = [rows, channels].
template <class T>
struct LayerNormInput {
  const T* x;
  const T* branch = nullptr;  ///< null: nothing is added
  T* sum = nullptr;
  std::int64_t rows_per_sample = 1;  ///< for the mask
  Dropout dropout{};

  /// Where the rows lie when they are normalized.
  [[nodiscard]] TRIREME_HOST_DEVICE const T* normalized() const {
    return branch == nullptr ? x : sum;
  }
};

}  // namespace trireme::ops
