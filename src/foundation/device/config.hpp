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
    {.help =
         "Take scratch memory from a pool that grows in the first step only. false: allocate it "
         "for each use; only for comparison."});
}

}  // namespace trireme::device
