// SPDX-License-Identifier: Apache-2.0
// A hash of a tensor that depends on its bits and their places and on no order: base/hash.hpp, made
// where the tensor is. One pass that only reads.
#pragma once

#include <cstdint>

#include "base/view.hpp"
#include "device/device.hpp"

namespace trireme::ops {

/// Writes to `hash` what trireme::hash_elements(values, 0) gives. Shapes: values [n], fp32 or bf16.
/// `hash` is memory that host and device share (Device::allocate_shared_with_host) and that
/// outlives the call; it is written in stream order.
void hash_elements(std::uint64_t& hash, ConstView values, device::Stream& stream);

}  // namespace trireme::ops
