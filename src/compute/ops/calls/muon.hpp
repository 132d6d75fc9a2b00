// SPDX-License-Identifier: Apache-2.0
// Calls of optimizer/muon.hpp; T and M, the moment's type, are float or Bf16.
#pragma once

#include <cstdint>

#include "ops/calls/call.hpp"
#include "ops/optimizer/moment_rounding.hpp"
#include "ops/optimizer/muon_step.hpp"
#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops {

template <class M>
struct MuonDirection {
  static constexpr const char* name = "muon_direction";
  float* gradient;
  M* m;
  MuonStep step;
  MomentRounding rounding;
  const GradientNorm* norm;
  std::int64_t count;
};

template <class T>
struct MuonUpdate {
  static constexpr const char* name = "muon_update";
  T* parameter;
  float* master;
  const float* direction;
  MuonStep step;
  const GradientNorm* norm;
  std::int64_t count;
};

namespace cpu {
template <class M>
void run(Threads, const MuonDirection<M>& call);
template <class T>
void run(Threads, const MuonUpdate<T>& call);
}  // namespace cpu

namespace cuda {
template <class M>
void run(const Queue& queue, const MuonDirection<M>& call);
template <class T>
void run(const Queue& queue, const MuonUpdate<T>& call);
}  // namespace cuda

}  // namespace trireme::ops
