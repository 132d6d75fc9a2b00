// SPDX-License-Identifier: Apache-2.0
// Fusion across layers, in one way. A layer whose work is cheaper inside of a pass that its
// neighbour makes anyhow asks the neighbour for it, once, when the model is put together. The
// neighbour answers whether it will; where not, the layer does the work itself. Neither depends on
// the kind of the other, and no layer gets work that it did not accept.
//
// There is one request as yet:
//
//   bias sums   A linear layer's output is added to the residual stream. The layer that reads the
//               stream next computes the stream's gradient, which is also that of this output, and
//               is asked to add its sums over the rows to the gradient of the bias. Not where
//               dropout comes between: then the gradient is another one.
//
// The other way round, forward, needs no request: every reader of the stream takes the addition in
// (Norm::forward_sum), fused or not.
#pragma once

#include "base/index.hpp"

namespace trireme::nn {

class Neighbour {
 public:
  virtual ~Neighbour() = default;
  /// Whether every backward pass adds the sums over the rows of the gradient that it computes to
  /// the gradient of `bias`, before it ends. At most one parameter is taken.
  virtual bool take_bias_sums(ParameterIndex bias) = 0;
};

}  // namespace trireme::nn
