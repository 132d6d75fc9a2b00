// SPDX-License-Identifier: Apache-2.0
// The call of rotary.hpp; T is float or Bf16. Null `positions` are those of whole sequences.
#pragma once

#include <cstdint>

#include "ops/calls/call.hpp"
#include "ops/shapes.hpp"

namespace trireme::ops {

template <class T>
struct Rotate {
  static constexpr const char* name = "rotate";
  T* packed;
  const float* table;
  const std::int32_t* positions;
  std::int64_t rows;
  RotaryShape shape;
  float direction;  ///< 1, or -1 to turn back
};

namespace cpu {
template <class T>
void run(Threads, const Rotate<T>& call);
}
namespace cuda {
template <class T>
void run(const Queue& queue, const Rotate<T>& call);
}

}  // namespace trireme::ops
