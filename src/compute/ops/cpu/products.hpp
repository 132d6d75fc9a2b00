// SPDX-License-Identifier: Apache-2.0
// The matmul's packing of operands and products of register blocks, at all levels (pack_kernels.hpp,
// product_kernels.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/round_up.hpp"

#include "ops/cpu/levels.hpp"
#include "ops/cpu/packed_operands.hpp"

#define TRIREME_KERNELS "ops/cpu/pack_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"
#define TRIREME_KERNELS "ops/cpu/product_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"
