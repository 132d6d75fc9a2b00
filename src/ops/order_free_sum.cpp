// SPDX-License-Identifier: Apache-2.0
#include "ops/order_free_sum.hpp"
