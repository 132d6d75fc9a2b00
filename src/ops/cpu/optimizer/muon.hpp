// SPDX-License-Identifier: Apache-2.0
// CPU bodies of muon.hpp; T and M, the moment's type, are float or Bf16.
#pragma once

#include <cstdint>

#include "ops/optimizer/muon.hpp"

namespace trireme::ops::cpu {

template <class M>
void muon_direction(float* gradient,
                    M* m,
                    const MuonStep& step,
                    const MomentRounding& rounding,
                    float scale,
                    std::int64_t count);

template <class T>
void muon_update(
    T* parameter, float* master, const float* direction, const MuonStep& step, std::int64_t count);

}  // namespace trireme::ops::cpu
