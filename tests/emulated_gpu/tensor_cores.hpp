// SPDX-License-Identifier: Apache-2.0
// The tensor core instructions and cp.async that src/compute/ops/cuda/mma.cuh uses, written from
// the figures of the PTX ISA ("Matrix Fragments for mma.m16n8k16", "ldmatrix"). It is an error if
// some lanes of a warp are missing (see block.hpp) or an address is not a multiple of 16.
#pragma once

#include <cstdint>
#include <cstring>

#include "block.hpp"
#include "settings.hpp"

namespace emulated {

/// c += A B. Sums over k are fp32 in ascending order; the order on a real GPU is not specified.
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

inline std::uintptr_t checked(const char* instruction, const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  if (address % 16 != 0)
    fail("%s: %p is not a multiple of 16", instruction, at);
  return address;
}

/// Inline in this header, so that sanitizers check the reads.
inline void load_matrices(std::uint32_t (&to)[4], const void* row, bool transposed) {
  const auto own = checked("ldmatrix", row);
  const Given& given = give_all(
      {static_cast<std::uint32_t>(own), static_cast<std::uint32_t>(std::uint64_t{own} >> 32U)});
  const unsigned group = lane() / 4, pair = lane() % 4 * 2;
  const auto element = [&](unsigned matrix, unsigned r, unsigned column) {
    const auto& words = given[8 * matrix + r];
    const auto at = static_cast<std::uintptr_t>(std::uint64_t{words[1]} << 32U | words[0]);
    std::uint16_t bits = 0;
    std::memcpy(&bits, reinterpret_cast<const std::byte*>(at) + sizeof bits * column, sizeof bits);
    return static_cast<std::uint32_t>(bits);
  };
  for (unsigned matrix = 0; matrix < 4; ++matrix)
    to[matrix] = transposed
                     ? element(matrix, pair, group) | element(matrix, pair + 1, group) << 16U
                     : element(matrix, group, pair) | element(matrix, group, pair + 1) << 16U;
}

/// Until wait_for_copies() (block.hpp) the destination holds NaN, in fp32 and in bf16.
inline void copy_ahead(void* to, const void* from, bool there) {
  checked("cp.async", to);
  checked("cp.async", from);
  Copied value{};
  if (there)
    std::memcpy(value.data(), from, sizeof value);
  std::memset(to, 0xff, sizeof value);
  copy_at_wait(to, value);
}

}  // namespace emulated
