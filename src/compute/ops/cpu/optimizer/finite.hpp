// SPDX-License-Identifier: Apache-2.0
// CPU body of finite.hpp.
#pragma once

#include <cstdint>

namespace trireme::ops::cpu {

std::int64_t find_not_finite(const float* values, std::int64_t count);

}  // namespace trireme::ops::cpu
