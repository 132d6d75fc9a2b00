// SPDX-License-Identifier: Apache-2.0
// The deck section `memory`.
#pragma once

#include "base/key.hpp"

namespace trireme::device {

struct MemoryConfig {
  bool pool = true;
};

template <class V>
void describe(V& v, MemoryConfig& c) {
  v("pool", c.pool,
    {.help = "Lease scratch memory from a pool sized in warm-up; off: allocate each lease anew."});
}

}  // namespace trireme::device
