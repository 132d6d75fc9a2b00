// SPDX-License-Identifier: Apache-2.0
// The CPU body of hash.hpp.
#pragma once

#include <cstdint>

#include "base/view.hpp"

namespace trireme::ops::cpu {

std::uint64_t hash_elements(ConstView values);

}  // namespace trireme::ops::cpu
