// SPDX-License-Identifier: Apache-2.0
// Read-only passes over a tensor: the index of its first non-finite value, and a hash of its bits.
// Also the norm of a gradient from the sum of its squares (order_free_sum.hpp), computed on the
// device so that no host waits for it inside a step.
#pragma once

#include <cstdint>
#include <span>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops {

/// Shapes: squares [1] fp64, the sum of the squares of the gradient. `norm` is memory of the
/// stream's device.
void gradient_norm(GradientNorm& norm,
                   ConstView squares,
                   const Clipping& clipping,
                   device::Stream& stream);

/// Writes to first[i] the index of the first element of values[i] (fp32) that is NaN or infinite,
/// or -1. `first` is memory that host and device share (Device::allocate_shared_with_host) and that
/// outlives the call; it is written in stream order. With `norm`, memory of the device: if it is
/// finite when the operation runs, nothing is read and the result is -1.
void find_not_finite(std::span<std::int64_t> first,
                     std::span<const ConstView> values,
                     device::Stream& stream,
                     const GradientNorm* norm = nullptr);

/// Writes to `hash` what trireme::hash_elements(values, 0) gives, which depends on bits and places
/// and on no order. Shapes: values [n], fp32 or bf16. `hash` is memory as `first` above.
void hash_elements(std::uint64_t& hash, ConstView values, device::Stream& stream);

}  // namespace trireme::ops
