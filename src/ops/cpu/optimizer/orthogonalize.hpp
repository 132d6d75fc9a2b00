// SPDX-License-Identifier: Apache-2.0
// CPU bodies of orthogonalize.hpp: what lies between its products.
#pragma once

#include <cstdint>

namespace trireme::ops::cpu {

/// a I + b A + c A A.
struct Polynomial {
  float a = 0, b = 0, c = 0;
};

/// x = x / (factor · |x| + guard). `sums`: room for one number per 16384 elements, which may lie
/// at any address that is a multiple of 8.
void normalize(float* x, double* sums, std::int64_t count, double factor, double guard);

/// Shapes: squared, gram [n, n]. `squared` holds gram · gram and becomes the polynomial of gram.
void polynomial(float* squared, const float* gram, std::int64_t n, const Polynomial& numbers);

/// out = scale · x; both may be the same.
void scale_into(float* out, const float* x, float scale, std::int64_t count);

}  // namespace trireme::ops::cpu
