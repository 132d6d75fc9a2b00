// SPDX-License-Identifier: Apache-2.0
// The levels of processors for which kernels with vectors are compiled (for_each_level.hpp), and
// the sixteen numbers at a time with which they compute: lanes.hpp, or x86/avx512_lanes.hpp for
// AVX-512, and lanes_math.hpp.
// 1. `plain` is the target's baseline: SSE2 on x86-64, NEON on aarch64.
// 2. A kernel adds up in the same order at all levels. `plain` on x86-64 does not fuse
//    multiplications with additions; otherwise the bits of sums, products and roots are the same,
//    and exponentials differ below 2^-126 only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/clones.hpp"
#include "base/dtype.hpp"

#include "ops/cpu/loops.hpp"
#if defined(__x86_64__)
#include "ops/cpu/x86/avx512_lanes.hpp"

#define TRIREME_AVX2 __attribute__((target("avx2,fma")))
#endif

#define TRIREME_KERNELS "ops/cpu/lanes.hpp"
#include "ops/cpu/for_each_level.hpp"
#define TRIREME_KERNELS "ops/cpu/lanes_math.hpp"
#include "ops/cpu/for_each_level.hpp"

namespace trireme::ops::cpu {

/// Whether kernels of level avx2 may run here.
inline bool has_avx2() {
#if defined(__x86_64__) && TRIREME_X86_LEVEL >= 3
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
#else
  return false;
#endif
}

template <class Function>
Function* best_of(Function* plain, Function* avx2, Function* avx512) {
  return has_avx512() ? avx512 : has_avx2() ? avx2 : plain;
}

}  // namespace trireme::ops::cpu

#if defined(__x86_64__)
#define TRIREME_BEST(...) best_of(plain::__VA_ARGS__, avx2::__VA_ARGS__, avx512::__VA_ARGS__)
#else
#define TRIREME_BEST(...) (&plain::__VA_ARGS__)
#endif
