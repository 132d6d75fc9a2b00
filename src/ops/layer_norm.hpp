// SPDX-License-Identifier: Apache-2.0
// Layer normalization over the last axis. Source: Ba, Kiros, Hinton 2016, eq. 3-4; epsilon 1e-5 as
// GPT-2.
//
// Shapes: x, y, dy, dx = [rows, channels] of one dtype T; gamma, beta = [channels] of T, beta may
// be an empty view (no bias); mean, rstd = [rows] fp32; dgamma, dbeta = [channels] fp32, added to,
// dbeta empty when beta is.
#pragma once

#include "base/view.hpp"

#include "device/device.hpp"

namespace trireme::ops {

void layer_norm_forward(View y,
                        View mean,
                        View rstd,
                        ConstView x,
                        ConstView gamma,
                        ConstView beta,
                        device::Stream& stream);

/// dx += the gradient with respect to x when `accumulate`, = otherwise.
void layer_norm_backward(View dx,
                         View dgamma,
                         View dbeta,
                         ConstView dy,
                         ConstView x,
                         ConstView gamma,
                         ConstView mean,
                         ConstView rstd,
                         bool accumulate,
                         device::Stream& stream);

}  // namespace trireme::ops
