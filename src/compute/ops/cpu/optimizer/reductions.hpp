// SPDX-License-Identifier: Apache-2.0
// CPU bodies of reductions.hpp and order_free_sum.hpp.
#pragma once

#include <cstdint>

#include "base/view.hpp"

#include "ops/optimizer/order_free_sum.hpp"

namespace trireme::ops::cpu {

std::int64_t find_not_finite(const float* values, std::int64_t count);
std::uint64_t hash_elements(ConstView values);
void add_squares(OrderFreeSum& sum, const float* values, std::int64_t count);
void add_values(OrderFreeSum& sum, const float* values, std::int64_t count);

}  // namespace trireme::ops::cpu
