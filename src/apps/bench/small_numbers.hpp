// SPDX-License-Identifier: Apache-2.0
// Fills operands of a bench with fixed numbers in [-0.25, 0.25], because zeros, denormals and
// overflowing sums would change the time.
#pragma once

#include <cstdint>
#include <functional>

#include "base/view.hpp"
#include "device/device.hpp"

namespace trireme::bench {

/// Sets every element of `to`, fp32 or bf16, to the value for its index. Waits for the stream.
void fill(View to, device::Stream& stream, const std::function<float(std::int64_t)>& value);

/// fp32 or bf16. Waits for the stream.
void fill_small_numbers(View to, device::Stream& stream);

}  // namespace trireme::bench
