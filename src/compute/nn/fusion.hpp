// SPDX-License-Identifier: Apache-2.0
// Fusion requests: at construction of a model, a layer may request that a neighbouring layer does
// some of its work inside a pass that the neighbour makes anyway. The neighbour accepts, or else
// the layer does the work itself. Neither depends on the kind of the other.
//
// There is one request:
//
//   bias sums   A linear layer's output is added to the residual stream. The layer that reads the
//               stream next computes the stream's gradient, which is also that of this output, and
//               can add its sums over the rows to the gradient of the bias. Not possible with
//               dropout between the two, because the gradients then differ.
//
// Forward needs no request: every reader of the stream does the addition (Norm::forward_sum).
#pragma once

#include "base/index.hpp"

namespace trireme::nn {

class FusionTarget {
 public:
  virtual ~FusionTarget() = default;
  /// Requests that every backward pass adds the sums over the rows of the gradient that it computes
  /// to the gradient of `bias`. Returns whether the layer accepts; it accepts at most one
  /// parameter.
  virtual bool accept_bias_sums(ParameterIndex bias) = 0;
};

}  // namespace trireme::nn
