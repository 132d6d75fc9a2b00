// SPDX-License-Identifier: Apache-2.0
// Compiles the file named by TRIREME_KERNELS once per level of the processor (levels.hpp), so that
// all levels share one source. The file has no include guard. It uses:
//
//   TRIREME_LEVEL    is the namespace of its contents: plain, avx2 or avx512
//   TRIREME_KERNEL   marks functions that are called from outside
//   TRIREME_PART     marks functions that are inlined into kernels, and lambdas inside of them
//   TRIREME_LANES    is the number of fp32 in a register
//
// TRIREME_BEST(function) of levels.hpp then selects the function for this processor.

#define TRIREME_LEVEL plain
#define TRIREME_LANES 4
#define TRIREME_KERNEL
#define TRIREME_PART __attribute__((always_inline))
#include TRIREME_KERNELS
#undef TRIREME_LEVEL
#undef TRIREME_LANES
#undef TRIREME_KERNEL
#undef TRIREME_PART

#if defined(__x86_64__)
#define TRIREME_LEVEL avx2
#define TRIREME_LANES 8
#define TRIREME_KERNEL TRIREME_AVX2
#define TRIREME_PART __attribute__((always_inline)) TRIREME_AVX2
#include TRIREME_KERNELS
#undef TRIREME_LEVEL
#undef TRIREME_LANES
#undef TRIREME_KERNEL
#undef TRIREME_PART

#define TRIREME_LEVEL avx512
#define TRIREME_LANES 16
#define TRIREME_KERNEL TRIREME_AVX512
#define TRIREME_PART __attribute__((always_inline)) TRIREME_AVX512
#include TRIREME_KERNELS
#undef TRIREME_LEVEL
#undef TRIREME_LANES
#undef TRIREME_KERNEL
#undef TRIREME_PART
#endif

#undef TRIREME_KERNELS
