// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/accumulate.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/clones.hpp"
#include "base/error.hpp"
#include "base/pairwise.hpp"

namespace trireme::comm {
namespace {

/// Elements that one pass over the sources keeps in the first-level cache.
constexpr std::int64_t block_elements = 1024;

// The functions below only add, so that all their clones give the same bits.

TRIREME_VECTOR_CLONES void copy_add(float* to, const float* a, const float* b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
}

TRIREME_VECTOR_CLONES void copy_add3(
    float* to, const float* a, const float* b, const float* c, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = (a[i] + b[i]) + c[i];
}

TRIREME_VECTOR_CLONES void copy_add4(
    float* to, const float* a, const float* b, const float* c, const float* d, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = ((a[i] + b[i]) + c[i]) + d[i];
}

TRIREME_VECTOR_CLONES void copy_add_pairs(
    float* to, const float* a, const float* b, const float* c, const float* d, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

TRIREME_VECTOR_CLONES void widen(float* __restrict to,
                                 const Bf16* __restrict from,
                                 std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

TRIREME_VECTOR_CLONES void add_widened(float* __restrict to,
                                       const Bf16* __restrict from,
                                       std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += static_cast<float>(from[i]);
}

TRIREME_VECTOR_CLONES void narrow(Bf16* __restrict to,
                                  const float* __restrict from,
                                  std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = Bf16(from[i]);
}

void sum_f32(float* out, std::span<const std::byte* const> sources, std::int64_t n) {
  const auto source = [&](std::size_t s) { return reinterpret_cast<const float*>(sources[s]); };
  switch (sources.size()) {
    case 1:
      if (out != source(0))
        std::memcpy(out, source(0), static_cast<std::size_t>(n) * sizeof(float));
      return;
    case 2:
      copy_add(out, source(0), source(1), n);
      return;
    case 3:
      copy_add3(out, source(0), source(1), source(2), n);
      return;
    case 4:
      copy_add4(out, source(0), source(1), source(2), source(3), n);
      return;
    default:
      break;
  }
  alignas(64) std::array<float, block_elements> sum;
  for (std::int64_t at = 0; at < n; at += block_elements) {
    const std::int64_t m = std::min(block_elements, n - at);
    copy_add4(sum.data(), source(0) + at, source(1) + at, source(2) + at, source(3) + at, m);
    for (std::size_t s = 4; s < sources.size(); ++s)
      copy_add(sum.data(), sum.data(), source(s) + at, m);
    std::memcpy(out + at, sum.data(), static_cast<std::size_t>(m) * sizeof(float));
  }
}

void sum_bf16(Bf16* out, std::span<const std::byte* const> sources, std::int64_t n) {
  const auto source = [&](std::size_t s) { return reinterpret_cast<const Bf16*>(sources[s]); };
  alignas(64) std::array<float, block_elements> sum;
  for (std::int64_t at = 0; at < n; at += block_elements) {
    const std::int64_t m = std::min(block_elements, n - at);
    widen(sum.data(), source(0) + at, m);
    for (std::size_t s = 1; s < sources.size(); ++s) add_widened(sum.data(), source(s) + at, m);
    narrow(out + at, sum.data(), m);
  }
}

void sum_i64(std::int64_t* out, std::span<const std::byte* const> sources, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t sum = 0;
    for (const std::byte* source : sources) sum += reinterpret_cast<const std::int64_t*>(source)[i];
    out[i] = sum;
  }
}

/// Sums a subtree of the sources, elements [at, at + n), n <= block_elements, into `to`, which is
/// not one of the sources.
template <class T>
void add_tree(float* to,
              std::span<const std::byte* const> sources,
              std::int64_t at,
              std::int64_t n) {
  const std::size_t count = sources.size();
  const auto source = [&](std::size_t s) { return reinterpret_cast<const T*>(sources[s]) + at; };
  if constexpr (std::is_same_v<T, float>) {
    if (count == 2)
      return copy_add(to, source(0), source(1), n);
    if (count == 4)
      return copy_add_pairs(to, source(0), source(1), source(2), source(3), n);
    if (count == 1) {
      std::memcpy(to, source(0), static_cast<std::size_t>(n) * sizeof(float));
      return;
    }
  } else if (count == 1) {
    return widen(to, source(0), n);
  }
  const std::size_t left = first_half(count);
  add_tree<T>(to, sources.first(left), at, n);
  alignas(64) std::array<float, block_elements> right;
  add_tree<T>(right.data(), sources.subspan(left), at, n);
  copy_add(to, to, right.data(), n);
}

}  // namespace

void sum_in_order(std::byte* out,
                  std::span<const std::byte* const> sources,
                  std::int64_t elements,
                  DType dtype) {
  if (dtype == DType::f32)
    sum_f32(reinterpret_cast<float*>(out), sources, elements);
  else if (dtype == DType::i64)
    sum_i64(reinterpret_cast<std::int64_t*>(out), sources, elements);
  else
    sum_bf16(reinterpret_cast<Bf16*>(out), sources, elements);
}

void sum_in_pairs(std::byte* out,
                  std::span<const std::byte* const> sources,
                  std::int64_t elements,
                  DType dtype) {
  if (sources.size() <= 3 || dtype == DType::i64) {
    sum_in_order(out, sources, elements, dtype);
    return;
  }
  alignas(64) std::array<float, block_elements> sum;
  for (std::int64_t at = 0; at < elements; at += block_elements) {
    const std::int64_t n = std::min(block_elements, elements - at);
    if (dtype == DType::f32) {
      add_tree<float>(sum.data(), sources, at, n);
      std::memcpy(reinterpret_cast<float*>(out) + at, sum.data(),
                  static_cast<std::size_t>(n) * sizeof(float));
    } else {
      add_tree<Bf16>(sum.data(), sources, at, n);
      narrow(reinterpret_cast<Bf16*>(out) + at, sum.data(), n);
    }
  }
}

void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) {
#ifdef __SSE2__
  constexpr std::size_t line = 64, worthwhile = std::size_t{256} << 10U;
  if (bytes >= worthwhile && reinterpret_cast<std::uintptr_t>(to) % line == 0) {
    const std::size_t lines = bytes / line;
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    for (std::size_t i = 0; i < lines; ++i, source += 4, target += 4) {
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    _mm_sfence();  // orders the streaming stores before later flags
    to += lines * line;
    from += lines * line;
    bytes -= lines * line;
  }
#endif
  if (bytes > 0)
    std::memcpy(to, from, bytes);
}

void add_to(float* to, const float* from, std::int64_t elements) {
  copy_add(to, to, from, elements);
}

void sum_in_steps(std::byte* out,
                  DType out_dtype,
                  std::span<const SumStep> steps,
                  std::span<const std::byte* const> sources,
                  std::int64_t elements,
                  DType dtype) {
  using enum SumStep::Kind;
  // A sum in pairs of 2^30 terms has one level more than 30.
  alignas(64) std::array<std::array<float, block_elements>, 32> levels;
  for (std::int64_t at = 0; at < elements; at += block_elements) {
    const std::int64_t n = std::min(block_elements, elements - at);
    std::size_t height = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const SumStep& step = steps[i];
      height += step.kind == load ? 1U : 0U;
      TRIREME_ASSERT(height > (step.kind == merge ? 1U : 0U) && height <= levels.size(),
                     "a step on {} partial sums", height);
      float* top = levels[height - 1].data();
      if (step.kind == merge) {
        --height;
        float* below = levels[height - 1].data();
        copy_add(below, below, top, n);
      } else if (step.partial || dtype == DType::f32) {
        const auto* from = reinterpret_cast<const float*>(sources[i]) + at;
        if (step.kind == add)
          copy_add(top, top, from, n);
        else
          std::memcpy(top, from, static_cast<std::size_t>(n) * sizeof(float));
      } else {
        const auto* from = reinterpret_cast<const Bf16*>(sources[i]) + at;
        step.kind == add ? add_widened(top, from, n) : widen(top, from, n);
      }
    }
    TRIREME_ASSERT(height == 1, "{} partial sums are left", height);
    if (out_dtype == DType::f32)
      std::memcpy(reinterpret_cast<float*>(out) + at, levels[0].data(),
                  static_cast<std::size_t>(n) * sizeof(float));
    else
      narrow(reinterpret_cast<Bf16*>(out) + at, levels[0].data(), n);
  }
}

}  // namespace trireme::comm
