// SPDX-License-Identifier: Apache-2.0
// Where tensors stop being numbers: one pass that only reads.
#pragma once

#include <cstdint>
#include <span>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/optimizer/gradient_norm.hpp"

namespace trireme::ops {

/// Writes to first[i] the index of the first element of values[i] (fp32) that is NaN or infinite,
/// or
/// -1. `first` is memory that host and device share (Device::allocate_shared_with_host) and that
/// outlives the call; it is written in stream order. With `norm`, memory of the device, there is
/// nothing to find where that is finite when the stream comes to it: nothing is read or written.
void find_not_finite(std::span<std::int64_t> first,
                     std::span<const ConstView> values,
                     device::Stream& stream,
                     const GradientNorm* norm = nullptr);

}  // namespace trireme::ops
