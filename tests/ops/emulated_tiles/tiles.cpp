// SPDX-License-Identifier: Apache-2.0
#include "ops/emulated_tiles/tiles.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.hpp"

namespace trireme::test::tiles {
namespace {

constexpr std::size_t most_rows = 16, row_bytes = 64, units = 16;
constexpr std::size_t num_tiles = 8;

struct Tile {
  std::size_t rows = 0, bytes = 0;
  std::array<std::array<std::uint32_t, units>, most_rows> row{};
};

/// One set per thread; a tile with no rows is not configured.
thread_local std::array<Tile, num_tiles> registers;

Tile& configured(int tile) {
  Tile& found = registers.at(static_cast<std::size_t>(tile));
  TRIREME_EXPECT(found.rows > 0, "tile {} is used without a configuration", tile);
  return found;
}

float without_subnormals(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}
float half(std::uint32_t pair, bool second) {
  return without_subnormals(std::bit_cast<float>(second ? pair & 0xffff0000U : pair << 16U));
}

}  // namespace

void load_config(const void* config) {
  std::array<std::uint8_t, 64> bytes{};
  std::memcpy(bytes.data(), config, bytes.size());
  TRIREME_EXPECT(bytes[0] == 1, "palette {} of tiles", bytes[0]);
  for (std::size_t t = 0; t < num_tiles; ++t) {
    std::uint16_t row = 0;
    std::memcpy(&row, bytes.data() + 16 + 2 * t, sizeof row);
    registers[t] = {.rows = bytes[48 + t], .bytes = row};
    TRIREME_EXPECT(registers[t].rows <= most_rows && row <= row_bytes, "a tile of {} x {} bytes",
                   registers[t].rows, row);
  }
}

void release() {
  registers = {};
}

void zero(int tile) {
  configured(tile).row = {};
}

void load(int tile, const void* from, std::int64_t stride) {
  Tile& to = configured(tile);
  to.row = {};
  for (std::size_t r = 0; r < to.rows; ++r)
    std::memcpy(to.row[r].data(),
                static_cast<const std::byte*>(from) + static_cast<std::int64_t>(r) * stride,
                to.bytes);
}

void store(int tile, void* to, std::int64_t stride) {
  const Tile& from = configured(tile);
  for (std::size_t r = 0; r < from.rows; ++r)
    std::memcpy(static_cast<std::byte*>(to) + static_cast<std::int64_t>(r) * stride,
                from.row[r].data(), from.bytes);
}

void multiply(int sums, int a, int b) {
  Tile& c = configured(sums);
  const Tile& left = configured(a);
  const Tile& right = configured(b);
  TRIREME_EXPECT(c.rows == left.rows && c.bytes == right.bytes && left.bytes == 4 * right.rows,
                 "tiles of {} x {} and {} x {} bytes into {} x {}", left.rows, left.bytes,
                 right.rows, right.bytes, c.rows, c.bytes);
  for (std::size_t m = 0; m < c.rows; ++m) {
    std::array<std::array<float, 2>, units> products{};  // first and second elements of pairs
    for (std::size_t k = 0; k < right.rows; ++k)
      for (std::size_t n = 0; n < c.bytes / 4; ++n)
        for (const bool second : {false, true}) {
          float& sum = products[n][second];
          sum = without_subnormals(
              std::fma(half(left.row[m][k], second), half(right.row[k][n], second), sum));
        }
    for (std::size_t n = 0; n < c.bytes / 4; ++n) {
      const float before = without_subnormals(std::bit_cast<float>(c.row[m][n]));
      const float both = without_subnormals(products[n][0] + products[n][1]);
      c.row[m][n] = std::bit_cast<std::uint32_t>(without_subnormals(before + both));
    }
  }
}

}  // namespace trireme::test::tiles
