// SPDX-License-Identifier: Apache-2.0
// What the AMX matmul does around the tiles of a block of 32 x 32 of C: it asks for the lines that
// are needed next, a few at a time while tiles are multiplied, and brings the sums to where they
// go.
//
// A large C goes around the caches. Stored the usual way, each of its lines would first be fetched,
// from memory and out of order, on the way on which the tiles come, and push A and B out.
//
// Sums of a block are stored by the tiles into 32 x 32 fp32 of the thread's scratch, which stays in
// the first-level cache, and go from there to C: with an addend where K is cut into blocks, with
// the bias and rounded once with the last of them. What goes around the caches is visible to other
// threads only after a fence, which the caller puts at the end of its part.
#pragma once

#include "ops/cpu/x86/amx_tiles.hpp"

namespace trireme::ops::cpu::amx {

/// Where a block of sums goes, and how.
struct BlockTarget : avx512::Target {
  std::int64_t rows = 0;
  bool around_caches = false;  ///< needs 32 columns, and lines of C that begin at cache lines

  [[nodiscard]] std::int64_t row_bytes() const { return c_stride * (c_is_bf16 ? 2 : 4); }
};

/// Lines of memory, one after another.
struct Lines {
  const std::byte* next = nullptr;
  const std::byte* end = nullptr;
};

/// Lines that will be needed: the rows of C, and the panel that follows. C's were as slow as the
/// sums if they waited for the stores.
class Prefetches {
 public:
  /// Over `steps` calls. What is left of `panel` stays there.
  TRIREME_AMX_INLINE Prefetches(const BlockTarget& target, std::int64_t steps, Lines& panel)
      : c_(target.c),
        row_bytes_(target.row_bytes()),
        last_byte_(target.c_is_bf16 ? 63 : 127),
        rows_(target.around_caches ? 0 : target.rows),
        rows_at_a_time_((rows_ + steps - 1) / steps),
        panel_(panel) {}

  TRIREME_AMX_INLINE void operator()() {
    const std::int64_t left = std::max<std::int64_t>(rows_ - rows_at_a_time_, 0);
    for (; rows_ > left; --rows_, c_ += row_bytes_) {
      __builtin_prefetch(c_, 1);
      __builtin_prefetch(c_ + last_byte_, 1);
    }
    constexpr int lines_at_a_time = 4;
    for (int i = 0; i < lines_at_a_time && panel_.next < panel_.end; ++i, panel_.next += 64)
      __builtin_prefetch(panel_.next, 0, 2);
  }

 private:
  const std::byte* c_;
  std::int64_t row_bytes_, last_byte_, rows_, rows_at_a_time_;
  Lines& panel_;
};

/// Sixteen sums (+ addend) (+ bias) of row `r`.
TRIREME_AMX_INLINE __m512 finished_sums(const float* sums,
                                        const BlockTarget& t,
                                        std::int64_t r,
                                        std::int64_t column,
                                        const __m512& bias,
                                        __mmask16 keep) {
  __m512 v = _mm512_load_ps(sums + r * block_edge + column);
  if (t.addend != nullptr)
    v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(keep, t.addend + r * t.addend_stride + column));
  if (t.bias != nullptr)
    v = _mm512_add_ps(v, bias);
  return v;
}

/// C's rows from the sums of a block.
template <bool around_caches>
TRIREME_AMX inline void store_block(const float* sums, const BlockTarget& t) {
  const __mmask16 left = avx512::first_lanes(t.columns);
  const __mmask16 right = avx512::first_lanes(t.columns - lanes);
  const __mmask32 both = avx512::first_lanes_32(t.columns);
  const bool biased = t.bias != nullptr;
  const __m512 bias_left = biased ? avx512::load_bias(t, 0, left) : _mm512_setzero_ps();
  const __m512 bias_right = biased ? avx512::load_bias(t, lanes, right) : _mm512_setzero_ps();
  for (std::int64_t r = 0; r < t.rows; ++r) {
    const __m512 low = finished_sums(sums, t, r, 0, bias_left, left);
    const __m512 high = finished_sums(sums, t, r, lanes, bias_right, right);
    std::byte* to = t.c + r * t.row_bytes();
    if (t.c_is_bf16) {
      const auto rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
      if constexpr (around_caches)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded);
      else
        _mm512_mask_storeu_epi16(to, both, rounded);
    } else if constexpr (around_caches) {
      _mm512_stream_ps(reinterpret_cast<float*>(to), low);
      _mm512_stream_ps(reinterpret_cast<float*>(to) + lanes, high);
    } else {
      _mm512_mask_storeu_ps(to, left, low);
      _mm512_mask_storeu_ps(to + 4 * lanes, right, high);
    }
  }
}

}  // namespace trireme::ops::cpu::amx
