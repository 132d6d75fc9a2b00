// SPDX-License-Identifier: Apache-2.0
// Both functions below give exactly the words of philox(), so a run repeats on a processor without
// AVX-512.
#include "ops/cpu/random_words.hpp"

#include "ops/cpu/loops.hpp"
#if defined(__x86_64__)
#include "ops/cpu/x86/avx512_lanes.hpp"
#endif

namespace trireme::ops::cpu {
namespace {

#if defined(__x86_64__)
// A lane holds one counter, and a register one of the four words of sixteen counters. Counters are
// placed so that, after the rounds, unpacking alone brings the four words of a counter side by side
// and the counters into order. AVX-512 multiplies 32-bit words in even lanes only: odd lanes are
// shifted down, multiplied and merged back, two multiplications for sixteen products.

TRIREME_AVX512_INLINE __m512i every_lane(std::uint32_t word) {
  return _mm512_set1_epi32(static_cast<int>(word));
}

/// Lower and upper halves of sixteen 64-bit products.
struct ProductWords {
  __m512i low, high;
};

/// Of sixteen 32-bit numbers and one.
TRIREME_AVX512_INLINE ProductWords multiply_words(__m512i a, __m512i factor) {
  const __m512i even = _mm512_mul_epu32(a, factor);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), factor);
  constexpr __mmask16 odd_lanes = 0xaaaa;
  return {_mm512_mask_blend_epi32(odd_lanes, even, _mm512_slli_epi64(odd, 32)),
          _mm512_mask_blend_epi32(odd_lanes, _mm512_srli_epi64(even, 32), odd)};
}

/// Of three words in one instruction.
TRIREME_AVX512_INLINE __m512i exclusive_or(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}

/// The words of 32 counters, two blocks of sixteen, because the rounds of one wait for one another.
TRIREME_AVX512_INLINE void fill_group(std::uint32_t* words,
                                      RandomKey key,
                                      std::uint64_t first,
                                      std::uint64_t high) {
  constexpr int blocks = 2;
  // Transposed as 4 x 4, so that four words of a counter end up together, and in order.
  const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i c[blocks][4];
  for (int b = 0; b < blocks; ++b) {
    const std::uint64_t begin = first + std::uint64_t{16} * static_cast<unsigned>(b);
    c[b][0] = _mm512_add_epi32(every_lane(static_cast<std::uint32_t>(begin)), places);
    const __mmask16 carried = _mm512_cmplt_epu32_mask(c[b][0], places);
    const __m512i upper = every_lane(static_cast<std::uint32_t>(begin >> 32U));
    c[b][1] = _mm512_mask_add_epi32(upper, carried, upper, every_lane(1));
    c[b][2] = every_lane(static_cast<std::uint32_t>(high));
    c[b][3] = every_lane(static_cast<std::uint32_t>(high >> 32U));
  }
  std::uint32_t k0 = key.low, k1 = key.high;
  for (int round = 0; round < 10; ++round) {
    for (auto& [c0, c1, c2, c3] : c) {
      const ProductWords p0 = multiply_words(c0, every_lane(0xD2511F53U));
      const ProductWords p1 = multiply_words(c2, every_lane(0xCD9E8D57U));
      c0 = exclusive_or(p1.high, c1, every_lane(k0));
      c2 = exclusive_or(p0.high, c3, every_lane(k1));
      c1 = p1.low;
      c3 = p0.low;
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  for (const auto& [c0, c1, c2, c3] : c) {
    const __m512i low01 = _mm512_unpacklo_epi32(c0, c1), high01 = _mm512_unpackhi_epi32(c0, c1);
    const __m512i low23 = _mm512_unpacklo_epi32(c2, c3), high23 = _mm512_unpackhi_epi32(c2, c3);
    _mm512_storeu_si512(words, _mm512_unpacklo_epi64(low01, low23));
    _mm512_storeu_si512(words + 16, _mm512_unpackhi_epi64(low01, low23));
    _mm512_storeu_si512(words + 32, _mm512_unpacklo_epi64(high01, high23));
    _mm512_storeu_si512(words + 48, _mm512_unpackhi_epi64(high01, high23));
    words += 64;
  }
}

TRIREME_AVX512 void fill_words_avx512(std::uint32_t* words,
                                      std::int64_t count,
                                      RandomKey key,
                                      std::uint64_t first,
                                      std::uint64_t high) {
  for (std::int64_t i = 0; i < count; i += random_group)
    fill_group(words + i, key, first + static_cast<std::uint64_t>(i / 4), high);
}
#endif

/// Sixteen counters at a time, so that the compiler can vectorize it: the ten rounds of a counter
/// depend on one another, but sixteen counters are independent.
TRIREME_CLONES void fill_words(std::uint32_t* words,
                               std::int64_t count,
                               RandomKey key,
                               std::uint64_t first,
                               std::uint64_t high) {
  constexpr unsigned lanes = 16;
  for (std::int64_t i = 0; i < count; i += std::int64_t{4} * lanes, first += lanes) {
    alignas(64) std::uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
#pragma omp simd
    for (unsigned l = 0; l < lanes; ++l) {
      c0[l] = static_cast<std::uint32_t>(first + l);
      c1[l] = static_cast<std::uint32_t>((first + l) >> 32U);
      c2[l] = static_cast<std::uint32_t>(high);
      c3[l] = static_cast<std::uint32_t>(high >> 32U);
    }
    std::uint32_t k0 = key.low, k1 = key.high;
    for (int round = 0; round < 10; ++round) {
#pragma omp simd
      for (unsigned l = 0; l < lanes; ++l) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0[l];
        const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2[l];
        c0[l] = static_cast<std::uint32_t>(p1 >> 32U) ^ c1[l] ^ k0;
        c2[l] = static_cast<std::uint32_t>(p0 >> 32U) ^ c3[l] ^ k1;
        c1[l] = static_cast<std::uint32_t>(p1);
        c3[l] = static_cast<std::uint32_t>(p0);
      }
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
#pragma omp simd
    for (unsigned l = 0; l < lanes; ++l) {
      std::uint32_t* const four = words + i + std::size_t{4} * l;
      four[0] = c0[l];
      four[1] = c1[l];
      four[2] = c2[l];
      four[3] = c3[l];
    }
  }
}

}  // namespace

const std::uint32_t* random_words(std::uint32_t* room,
                                  RandomKey key,
                                  std::uint64_t base,
                                  std::int64_t first,
                                  std::int64_t count,
                                  std::uint64_t high) {
  auto* fill = fill_words;
#if defined(__x86_64__)
  if (has_avx512())
    fill = fill_words_avx512;
#endif
  const std::int64_t skipped = first % 4;
  fill(room, skipped + count, key, base + static_cast<std::uint64_t>(first / 4), high);
  return room + skipped;
}

}  // namespace trireme::ops::cpu
