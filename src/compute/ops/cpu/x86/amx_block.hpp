// SPDX-License-Identifier: Apache-2.0
// Work of the AMX matmul next to multiplying the tiles of a block of 32 x 32 of C: it prefetches
// the lines that are needed next, a few at a time while tiles are multiplied, and stores the sums.
//
// A large C bypasses the caches. With ordinary stores, each of its lines would first be fetched
// from memory, compete with the loads of tiles, and evict A and B.
//
// The tiles store the sums of a block into 32 x 32 fp32 on the thread's stack. From there the sums
// go to C: with an addend where K is cut into blocks, with the bias and rounded once with the last
// of them. Stores that bypass the caches are visible to other threads only after a fence, which the
// caller puts at the end of its part.
//
// The sums of a block go to C while the next block is multiplied. The tiles' stores often miss the
// first-level cache, because A and B of a block push the sums out of it, so reading them back at
// once would make the processor wait instead of loading the next tiles.
#pragma once

#include "ops/cpu/x86/amx_tiles.hpp"

namespace trireme::ops::cpu::amx {

/// Where a block of sums goes, and how.
struct BlockTarget : Target {
  std::int64_t rows = 0;
  bool around_caches = false;  ///< needs 32 columns, and lines of C that begin at cache lines
  bool prefetched = false;     ///< the rows of C are, before they are stored

  [[nodiscard]] std::int64_t row_bytes() const { return c_stride * (c_is_bf16 ? 2 : 4); }
};

/// Lines of memory, one after another.
struct Lines {
  const std::byte* next = nullptr;
  const std::byte* end = nullptr;
};

/// Lines that will be needed: the panel that follows and, where they are not likely to be near, the
/// rows of C, which would be as slow as the sums if they waited for the stores.
class Prefetches {
 public:
  /// Over `steps` calls. What is left of `panel` stays there.
  TRIREME_AMX_INLINE Prefetches(const BlockTarget& target, std::int64_t steps, Lines& panel)
      : c_(target.c),
        row_bytes_(target.row_bytes()),
        last_byte_(target.c_is_bf16 ? 63 : 127),
        rows_(target.prefetched ? target.rows : 0),
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

/// The sums of a block that are not yet in C; store() stores some rows at a time.
class PendingSums {
 public:
  PendingSums() = default;
  TRIREME_AMX_INLINE PendingSums(const float* sums, const BlockTarget& target)
      : sums_(sums), target_(target), rows_(target.rows) {}

  [[nodiscard]] std::int64_t rows() const { return rows_; }

  /// At most `count` rows.
  TRIREME_AMX_INLINE void store(std::int64_t count) {
    count = std::min(count, rows_);
    if (count <= 0)
      return;
    rows_ -= count;
    const Columns columns(target_);
    for (; count > 0; --count) store_row(columns);
  }

 private:
  /// Which columns there are, and their bias.
  struct Columns {
    TRIREME_AMX_INLINE explicit Columns(const BlockTarget& t)
        : left(avx512::first_lanes(t.columns)),
          right(avx512::first_lanes(t.columns - lanes)),
          both(avx512::first_lanes_32(t.columns)),
          bias_left(t.bias != nullptr ? avx512::load_bias(t, 0, left) : _mm512_setzero_ps()),
          bias_right(t.bias != nullptr ? avx512::load_bias(t, lanes, right) : _mm512_setzero_ps()) {
    }
    __mmask16 left, right;
    __mmask32 both;
    __m512 bias_left, bias_right;
  };

  TRIREME_AMX_INLINE void store_row(const Columns& columns) {
    __m512 low = _mm512_load_ps(sums_), high = _mm512_load_ps(sums_ + lanes);
    sums_ += block_edge;
    if (target_.addend != nullptr) {
      low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(columns.left, target_.addend));
      high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(columns.right, target_.addend + lanes));
      target_.addend += target_.addend_stride;
    }
    if (target_.bias != nullptr) {
      low = _mm512_add_ps(low, columns.bias_left);
      high = _mm512_add_ps(high, columns.bias_right);
    }
    std::byte* to = target_.c;
    target_.c += target_.row_bytes();
    if (target_.c_is_bf16) {
      const auto rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
      if (target_.around_caches)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded);
      else
        _mm512_mask_storeu_epi16(to, columns.both, rounded);
    } else if (target_.around_caches) {
      _mm512_stream_ps(reinterpret_cast<float*>(to), low);
      _mm512_stream_ps(reinterpret_cast<float*>(to) + lanes, high);
    } else {
      _mm512_mask_storeu_ps(to, columns.left, low);
      _mm512_mask_storeu_ps(to + 4 * lanes, columns.right, high);
    }
  }

  const float* sums_ = nullptr;
  BlockTarget target_;
  std::int64_t rows_ = 0;
};

/// Called once per 16 units of a block: prefetches what follows and stores sums of the last block.
struct Meanwhile {
  Prefetches prefetches;
  PendingSums& pending;
  std::int64_t rows_at_a_time;

  TRIREME_AMX_INLINE void operator()() {
    prefetches();
    pending.store(rows_at_a_time);
  }
};

}  // namespace trireme::ops::cpu::amx
