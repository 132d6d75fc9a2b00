// SPDX-License-Identifier: Apache-2.0
// Shapes that contracts and kernels share; without the headers of a contract, which nvcc takes long
// over.
#pragma once

#include <cstdint>

namespace trireme::ops {

/// Of embedding.hpp.
struct EmbeddingShape {
  std::int64_t batch = 0, time = 0, channels = 0, vocabulary = 0;
};

/// Of rotary.hpp.
struct RotaryShape {
  std::int64_t time = 0;   ///< positions of a sequence, for rows without `positions`
  std::int64_t heads = 0;  ///< that turn: those of queries and of keys
  std::int64_t head_channels = 0;
  std::int64_t stride = 0;  ///< elements of a row
};

}  // namespace trireme::ops
