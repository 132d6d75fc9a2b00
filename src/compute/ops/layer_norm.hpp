// SPDX-License-Identifier: Apache-2.0
// Layer normalization over the last axis, of a residual stream as it is or of what it becomes when
// a branch is added to it, in one pass over memory. Source: Ba, Kiros, Hinton 2016, eq. 3-4;
// epsilon 1e-5 as GPT-2.
//
// Where the view `mean` is empty it is RMS normalization: nothing is subtracted, and rows are
// divided by the root of their mean square plus epsilon. Source: Zhang, Sennrich 2019, eq. 4.
//
// The gradient takes one pass as well: that of the stream grows by that of the norm (`accumulate`),
// and is the branch's at the same time, up to dropout (dropout_backward in elementwise.hpp).
//
// Shapes: x, y, dy, dx, sum, branch = [rows, channels] of one dtype T; gamma, beta = [channels] of
// T, each may be an empty view (no gain, no bias); mean, rstd = [rows] fp32, of which rstd gives
// the number of rows; dgamma, dbeta = [channels] fp32, added to, empty where gamma and beta are.
#pragma once

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/dropout.hpp"

namespace trireme::ops {

void layer_norm_forward(View y,
                        View mean,
                        View rstd,
                        ConstView x,
                        ConstView gamma,
                        ConstView beta,
                        float epsilon,
                        device::Stream& stream);

/// sum = x + dropout(branch), y = layer_norm(sum): to the bit what layer_norm_forward makes of the
/// sum as it is stored, rounded to T. `sum` may be `x`; a sample of the mask is `rows_per_sample`
/// rows.
void residual_layer_norm_forward(View sum,
                                 View y,
                                 View mean,
                                 View rstd,
                                 ConstView x,
                                 ConstView branch,
                                 ConstView gamma,
                                 ConstView beta,
                                 std::int64_t rows_per_sample,
                                 const Dropout& dropout,
                                 float epsilon,
                                 device::Stream& stream);

/// dx += the gradient with respect to x when `accumulate`, = otherwise. `dbias`, where it is not
/// empty, += the sums of dx over the rows: x is a linear layer's output plus something else, and
/// this is the gradient of its bias (bias_backward), for which dx need not be read again.
void layer_norm_backward(View dx,
                         View dgamma,
                         View dbeta,
                         View dbias,
                         ConstView dy,
                         ConstView x,
                         ConstView gamma,
                         ConstView mean,
                         ConstView rstd,
                         bool accumulate,
                         device::Stream& stream);

}  // namespace trireme::ops
