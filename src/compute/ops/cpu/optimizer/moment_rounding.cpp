// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/optimizer/moment_rounding.hpp"

#include <cstddef>

#include "ops/cpu/random_words.hpp"
#if defined(__x86_64__)
#include "ops/cpu/x86/avx512_random.hpp"
#endif

namespace trireme::ops::cpu {
namespace {

/// Words written at a time by any of the functions below, or a divisor of it.
constexpr std::int64_t words_at_a_time = 128;
static_assert(moment_run_elements % words_at_a_time == 0);

#if defined(__x86_64__)
TRIREME_AVX512 void fill_words_avx512(std::uint32_t* words,
                                      std::int64_t count,
                                      RandomKey key,
                                      std::uint64_t first,
                                      std::uint64_t high) {
  for (std::int64_t i = 0; i < count; i += words_at_a_time)
    avx512::random_words_128(words + i, key, first + static_cast<std::uint64_t>(i / 4), high);
}
#endif

TRIREME_CLONES void fill_words(std::uint32_t* words,
                               std::int64_t count,
                               RandomKey key,
                               std::uint64_t first,
                               std::uint64_t high) {
  for (std::int64_t i = 0; i < count; i += std::int64_t{4} * random_lanes) {
    alignas(64) RandomLanes lanes;
    random_words(lanes, key, first + static_cast<std::uint64_t>(i / 4), high);
#pragma omp simd
    for (unsigned l = 0; l < random_lanes; ++l) {
      std::uint32_t* const four = words + i + std::size_t{4} * l;
      four[0] = lanes[0][l];
      four[1] = lanes[1][l];
      four[2] = lanes[2][l];
      four[3] = lanes[3][l];
    }
  }
}

}  // namespace

const std::uint32_t* moment_words(MomentWords& words,
                                  const MomentRounding& rounding,
                                  std::int64_t begin,
                                  std::int64_t count) {
  const std::int64_t skipped = (rounding.first + begin) % 4;
  const std::uint64_t first = rounding.counter(begin);
  auto* fill = fill_words;
#if defined(__x86_64__)
  if (has_avx512())
    fill = fill_words_avx512;
#endif
  fill(words.room.data(), skipped + count, rounding.key, first, rounding.step);
  return words.room.data() + skipped;
}

}  // namespace trireme::ops::cpu
