// SPDX-License-Identifier: Apache-2.0
// The numbers of one step of Muon (optimizer/muon.hpp). Kernels include it, so it includes nothing.
#pragma once

namespace trireme::ops {

/// The same for every element.
struct MuonStep {
  float learning_rate = 0, weight_decay = 0, momentum = 0;
  float gain = 1;  ///< 1 - momentum, computed in double by the caller
  bool nesterov = true;
};

}  // namespace trireme::ops
