// SPDX-License-Identifier: Apache-2.0
// The products of the matmul's register blocks, at all levels (product_kernels.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/round_up.hpp"

#include "ops/cpu/levels.hpp"
#include "ops/cpu/packed_operands.hpp"

#define TRIREME_KERNELS "ops/cpu/product_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"
