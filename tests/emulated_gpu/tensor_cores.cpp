// SPDX-License-Identifier: Apache-2.0
#include "tensor_cores.hpp"

#include <bit>
#include <cmath>

namespace emulated {
namespace {

float half_of(std::uint32_t word, unsigned index) {
  return std::bit_cast<float>(index % 2 == 0 ? word << 16U : word & 0xffff0000U);
}

}  // namespace

void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const Given& given = give_all({a[0], a[1], a[2], a[3], b0, b1});
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane() / 4 + i / 2 * 8, column = lane() % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      // The lane of a group of four that holds k, and the word in it.
      const unsigned place = k % 8 / 2, late = k / 8;
      const std::uint32_t of_a = given[row % 8 * 4 + place][row / 8 + late * 2];
      const std::uint32_t of_b = given[column * 4 + place][4 + late];
      c[i] = std::fma(half_of(of_a, k), half_of(of_b, k), c[i]);
    }
  }
}

}  // namespace emulated
