// SPDX-License-Identifier: Apache-2.0
// CPU body of rotary.hpp; T is float or Bf16. Null `positions` are those of whole sequences.
#pragma once

#include <cstdint>

#include "ops/rotary.hpp"

namespace trireme::ops::cpu {

template <class T>
void rotate(T* packed,
            const float* table,
            const std::int32_t* positions,
            std::int64_t rows,
            const RotaryShape& shape,
            Turn turn);

}  // namespace trireme::ops::cpu
