// SPDX-License-Identifier: Apache-2.0
// CPU bodies of order_free_sum.hpp.
#pragma once

#include <cstdint>

#include "ops/optimizer/order_free_sum.hpp"

namespace trireme::ops::cpu {

void add_squares(OrderFreeSum& sum, const float* values, std::int64_t count);
void add_values(OrderFreeSum& sum, const float* values, std::int64_t count);

}  // namespace trireme::ops::cpu
