// SPDX-License-Identifier: Apache-2.0
// What the operands of a bench hold: numbers within [-0.25, 0.25], always the same, because zeros
// and denormals would cost another time, and so would sums that overflow.
#pragma once

#include "base/view.hpp"
#include "device/device.hpp"

namespace trireme::bench {

/// fp32 or bf16. Waits for the stream.
void fill_small_numbers(View to, device::Stream& stream);

}  // namespace trireme::bench
