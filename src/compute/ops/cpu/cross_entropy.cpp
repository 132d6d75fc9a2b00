// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/loops.hpp"
#if defined(__x86_64__)
#include "ops/cpu/x86/avx512_cross_entropy.hpp"
#endif

namespace trireme::ops::cpu {
namespace {

/// What a kernel makes of logits: here, what they are. No result is a product that ends in a
/// subtraction elsewhere, for whether the two are fused would depend on the kernel.
struct Uncapped {
  explicit Uncapped(const LossTerms& /*terms*/) {}
  TRIREME_INLINE float of(float logit) const { return logit; }
  /// The logit that the loss sees.
  TRIREME_INLINE float logit(float x) const { return x; }
  /// The difference of two such logits.
  TRIREME_INLINE float difference(float x, float from) const { return x - from; }
  /// log_sum - difference(x, from).
  TRIREME_INLINE float loss(float log_sum, float x, float from) const {
    return log_sum - (x - from);
  }
  /// Of a logit, from the gradient of what the loss sees.
  TRIREME_INLINE float gradient(float outer, float /*x*/) const { return outer; }
};

/// Within 2 units in the last place, also near 0; NaN stays NaN. Source: Cephes, tanhf.c.
TRIREME_INLINE float fast_tanh(float x) {
  const float magnitude = x < 0 ? -x : x, square = x * x;
  float p = -5.70498872745e-3F;
  p = p * square + 2.06390887954e-2F;
  p = p * square + -5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square + -3.33332819422e-1F;
  const float far = 1.0F - 2.0F / (1.0F + fast_exp(2.0F * magnitude));
  return magnitude < 0.625F ? p * square * x + x : (x < 0 ? -far : far);
}

/// x is the logit in units of the cap, tanh(logit / c).
struct Capped {
  explicit Capped(const LossTerms& terms) : cap(terms.softcap), inverse(1.0F / terms.softcap) {}
  TRIREME_INLINE float of(float logit) const { return fast_tanh(logit * inverse); }
  TRIREME_INLINE float logit(float x) const { return cap * x; }
  TRIREME_INLINE float difference(float x, float from) const { return cap * (x - from); }
  TRIREME_INLINE float loss(float log_sum, float x, float from) const {
    return std::fma(-cap, x - from, log_sum);
  }
  TRIREME_INLINE float gradient(float outer, float x) const { return outer * (1.0F - x * x); }

  float cap, inverse;
};

/// Sums of 512 are added up, so that large vocabularies keep their digits on any lane count.
template <class T, class Cap>
TRIREME_INLINE float exponentials_of(const T* row, Cap cap, float largest, std::int64_t V) {
  constexpr std::int64_t together = 512;
  float total = 0;
  for (std::int64_t begin = 0; begin < V; begin += together) {
    const std::int64_t end = std::min(V, begin + together);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t v = begin; v < end; ++v)
      sum += fast_exp(cap.difference(cap.of(to_float(row[v])), largest));
    total += sum;
  }
  return total;
}

/// Of what the loss sees: a cap keeps the order of the logits.
template <class T, class Cap>
TRIREME_INLINE float largest_seen(const T* row, Cap cap, std::int64_t V) {
  return cap.of(largest_of(row, V, -std::numeric_limits<float>::infinity()));
}

template <class Cap, class T>
TRIREME_CLONES void forward_kernel(float* losses,
                                   const T* logits,
                                   const std::int32_t* targets,
                                   const LossTerms* terms,
                                   std::int64_t rows,
                                   std::int64_t V) {
  const Cap cap(*terms);
  for (std::int64_t r = 0; r < rows; ++r, logits += V) {
    losses[r] = 0;
    if (targets[r] < 0)
      continue;
    const float largest = largest_seen(logits, cap, V);
    const float sum = exponentials_of(logits, cap, largest, V);
    losses[r] = cap.loss(std::log(sum), cap.of(to_float(logits[targets[r]])), largest);
  }
}

template <class Cap, class T, class D>
TRIREME_CLONES void forward_backward_kernel(float* losses,
                                            D* gradient,
                                            const T* logits,
                                            const std::int32_t* targets,
                                            const LossTerms* terms,
                                            float scale,
                                            std::int64_t rows,
                                            std::int64_t V) {
  const Cap cap(*terms);
  const float twice_z_loss = 2.0F * terms->z_loss;
  for (std::int64_t r = 0; r < rows; ++r, logits += V, gradient += V) {
    if (targets[r] < 0) {
      losses[r] = 0;
      for (std::int64_t v = 0; v < V; ++v) gradient[v] = from_float<D>(0.0F);
      continue;
    }
    const float largest = largest_seen(logits, cap, V);
    const float sum = exponentials_of(logits, cap, largest, V);
    const float log_sum = std::log(sum);
    const float target = cap.of(to_float(logits[targets[r]]));
    losses[r] = cap.loss(log_sum, target, largest);
    float factor = scale / sum;
    if (twice_z_loss > 0)
      factor *= 1.0F + twice_z_loss * (cap.logit(largest) + log_sum);
#pragma omp simd
    for (std::int64_t v = 0; v < V; ++v) {
      const float x = cap.of(to_float(logits[v]));
      gradient[v] = from_float<D>(cap.gradient(fast_exp(cap.difference(x, largest)) * factor, x));
    }
    gradient[targets[r]] = from_float<D>(
        cap.gradient(fast_exp(cap.difference(target, largest)) * factor - scale, target));
  }
}

TRIREME_CLONES void cap_kernel(float* logits, const LossTerms* terms, std::int64_t count) {
  const Capped cap(*terms);
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) logits[i] = cap.logit(cap.of(logits[i]));
}

std::int64_t rows_per_chunk(std::int64_t V) {
  return std::max<std::int64_t>(1, elements_per_chunk / V);
}

template <class T, class D>
void run_into(const CrossEntropyForwardBackward& call) {
  const std::int64_t V = call.vocabulary();
  auto* kernel = call.terms.capped() ? forward_backward_kernel<Capped, T, D>
                                     : forward_backward_kernel<Uncapped, T, D>;
#if defined(__x86_64__)
  if (has_avx512() && !call.terms.capped())
    kernel = avx512::cross_entropy_forward_backward<T, D>;
#endif
  for_chunks(call.targets.elements, rows_per_chunk(V), [&](std::int64_t begin, std::int64_t end) {
    kernel(call.losses.as<float>() + begin, call.d_logits.as<D>() + begin * V,
           call.logits.as<T>() + begin * V, call.targets.as<std::int32_t>() + begin, &call.terms,
           call.scale, end - begin, V);
  });
}

}  // namespace

template <class T>
void run(Threads, const CrossEntropyForward& call) {
  const std::int64_t V = call.vocabulary();
  auto* kernel = call.terms.capped() ? forward_kernel<Capped, T> : forward_kernel<Uncapped, T>;
#if defined(__x86_64__)
  if (has_avx512() && !call.terms.capped())
    kernel = avx512::cross_entropy_forward<T>;
#endif
  for_chunks(call.targets.elements, rows_per_chunk(V), [&](std::int64_t begin, std::int64_t end) {
    kernel(call.losses.as<float>() + begin, call.logits.as<T>() + begin * V,
           call.targets.as<std::int32_t>() + begin, &call.terms, end - begin, V);
  });
}

template <class T>
void run(Threads, const CrossEntropyForwardBackward& call) {
  if (call.d_logits.dtype == DType::bf16)
    run_into<T, Bf16>(call);
  else
    run_into<T, T>(call);
}

template <class T>
void run(Threads, const CapLogits& call) {
  for_chunks(call.logits.elements, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    cap_kernel(call.logits.as<T>() + begin, &call.terms, end - begin);
  });
}

TRIREME_CPU_BODIES(CrossEntropyForward);
TRIREME_CPU_BODIES(CrossEntropyForwardBackward);
template void run<float>(Threads, const CapLogits&);

}  // namespace trireme::ops::cpu
