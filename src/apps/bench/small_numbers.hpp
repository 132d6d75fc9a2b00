// SPDX-License-Identifier: Apache-2.0
// Fills operands of a bench with fixed numbers in [-0.25, 0.25], because zeros, denormals and
// overflowing sums would change the time.
#pragma once

#include "base/view.hpp"
#include "device/device.hpp"

namespace trireme::bench {

/// fp32 or bf16. Waits for the stream.
void fill_small_numbers(View to, device::Stream& stream);

}  // namespace trireme::bench
