// SPDX-License-Identifier: Apache-2.0
// CUDA body of rotary.hpp; T is float or Bf16. Null `positions` are those of whole sequences.
#pragma once

#include <cstdint>

#include "device/cuda/raw_stream.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

/// As RotaryShape.
struct RotarySizes {
  std::int64_t time, heads, head_channels, stride;
};

template <class T>
void rotate(T* packed,
            const float* table,
            const std::int32_t* positions,
            std::int64_t rows,
            const RotarySizes& sizes,
            bool back,
            RawStream stream);

}  // namespace trireme::ops::cuda
