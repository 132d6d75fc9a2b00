// SPDX-License-Identifier: Apache-2.0
// Where a tensor stops being numbers: one pass that only reads.
#pragma once

#include <cstdint>

#include "base/view.hpp"

#include "device/device.hpp"

#include "ops/optimizer/gradient_norm.hpp"

namespace trireme::ops {

/// Writes to `first` the index of the first element of `values` (fp32) that is NaN or infinite, or
/// -1. `first` is memory that host and device share (Device::allocate_shared_with_host) and that
/// outlives the call; it is written in stream order. With `norm`, memory of the device, there is
/// nothing to find where that is finite when the stream comes to it: nothing is read or written.
void find_not_finite(std::int64_t& first,
                     ConstView values,
                     device::Stream& stream,
                     const GradientNorm* norm = nullptr);

}  // namespace trireme::ops
