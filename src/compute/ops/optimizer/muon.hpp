// SPDX-License-Identifier: Apache-2.0
// The elementwise halves of Muon, before and after the orthogonalization of whole matrices
// (ops/optimizer/orthogonalize.hpp).
//
//   MuonDirection    g = norm.scale · gradient;  m = momentum·m + (1-momentum)·g
//                    gradient = (1-momentum)·g + momentum·m, or m without Nesterov
//   MuonUpdate       master -= learning_rate · (direction + weight_decay·master)
//                    parameter = master, rounded to the parameter's dtype
//
// If norm.finite is 0 when the operation runs, nothing is written. Source: Jordan et al., "Muon: an
// optimizer for hidden layers in neural networks", 2024, with the momentum as a mean; the decay of
// Liu et al., "Muon is scalable for LLM training", arXiv 2502.16982, section 2.2.
#pragma once

#include "ops/operation.hpp"
#include "ops/optimizer/moment_rounding.hpp"
#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops {

/// The numbers of one step, the same for every element.
struct MuonStep {
  float learning_rate = 0, weight_decay = 0, momentum = 0;
  float gain = 1;  ///< 1 - momentum, computed in double by the caller
  bool nesterov = true;
};

struct MuonDirection {
  static constexpr const char* name = "muon_direction";
  View gradient;  ///< [n] fp32
  /// [n] fp32 or bf16. In bf16 it is rounded stochastically like a first moment
  /// (moment_rounding.hpp); the direction uses the unrounded value.
  View m;
  MuonStep step;
  MomentRounding rounding = {};
  const GradientNorm* norm;  ///< memory of the stream's device
};
TRIREME_OPERATION(MuonDirection);

struct MuonUpdate {
  static constexpr const char* name = "muon_update";
  View parameter;       ///< [n] of T
  View master;          ///< [n] fp32; may be parameter
  ConstView direction;  ///< [n] fp32
  MuonStep step;
  const GradientNorm* norm;  ///< memory of the stream's device
};
TRIREME_OPERATION(MuonUpdate);

}  // namespace trireme::ops
