// SPDX-License-Identifier: Apache-2.0
// Products of bf16 matrices on a warp's tensor cores (sm_80 or later): C += A B with A of 16 x 16,
// B of 16 x 8 and C of 16 x 8 in fp32. All lanes of the warp must call together.
//
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix". Of lane 4 g + q:
//   A, four words of two columns each: row g, columns 2 q and 2 q + 1; row g + 8, the same; row g,
//      columns 2 q + 8 and 2 q + 9; row g + 8, the same. The lower half of a word is the lower
//      column.
//   B, two words of two rows each: rows 2 q and 2 q + 1, and rows 2 q + 8 and 2 q + 9, of column g.
//   C: row g, columns 2 q and 2 q + 1; row g + 8, the same.
//
// And asynchronous copies from memory to shared memory. Source: PTX ISA, "cp.async".
//
// Where the host's compiler reads this, the emulated GPU does the same (tests/emulated_gpu); what it
// copies is there at the wait, and neither it nor what it overwrites is before.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace trireme::ops::cuda {

__device__ inline void multiply_add(float (&c)[4],
                                    const std::uint32_t (&a)[4],
                                    std::uint32_t b0,
                                    std::uint32_t b1) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  emulated::multiply_add(c, a, b0, b1);
#endif
}

/// Four matrices of 8 x 8 elements of 16 bits from shared memory, a word of each: lane 8 m + r
/// gives the address of row r of matrix m, a multiple of 16, and lane 4 g + q takes row g, columns
/// 2 q and 2 q + 1.
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
#ifdef __CUDACC__
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
#else
  emulated::load_matrices(to, row, false);
#endif
}

/// The same, but lane 4 g + q takes column g, rows 2 q and 2 q + 1.
__device__ inline void load_transposed(std::uint32_t (&to)[4], const void* row) {
#ifdef __CUDACC__
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
#else
  emulated::load_matrices(to, row, true);
#endif
}

/// Two numbers as bf16, rounded to nearest even, `low` in the lower half.
__device__ inline std::uint32_t rounded_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.x)) |
         static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16U;
}

/// Copies 16 bytes between addresses that are multiples of 16; writes zeros if not `there`.
__device__ inline void copy_ahead(void* to, const void* from, bool there) {
#ifdef __CUDACC__
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
               : "memory");
#else
  emulated::copy_ahead(to, from, there);
#endif
}

/// Waits for all copies of this thread; other threads see the data after a barrier.
__device__ inline void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emulated::wait_for_copies();
#endif
}

}  // namespace trireme::ops::cuda
