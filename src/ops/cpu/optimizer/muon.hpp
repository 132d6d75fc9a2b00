// SPDX-License-Identifier: Apache-2.0
// CPU bodies of muon.hpp; T is float or Bf16.
#pragma once

#include <cstdint>

#include "ops/optimizer/muon.hpp"

namespace trireme::ops::cpu {

void muon_direction(
    float* gradient, float* m, const MuonStep& step, float scale, std::int64_t count);

template <class T>
void muon_update(
    T* parameter, float* master, const float* direction, const MuonStep& step, std::int64_t count);

}  // namespace trireme::ops::cpu
