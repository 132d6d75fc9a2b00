// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of logits sixteen at a time. A row is read three times: for its largest logit, for
// the sum of exponentials, and for the gradient. A row of a vocabulary of 50304 is 200 KB of fp32,
// so only the first time it comes from beyond the second-level cache. Included once per level
// (for_each_level.hpp).

namespace trireme::ops::cpu::TRIREME_LEVEL {
namespace {

/// e^x for x <= 0, within 3 units in the last place; keeps NaN. log2(e) is split into two parts, so
/// that no digits are lost far from 0.
TRIREME_PART inline Floats exponential_below_one(const Floats& x) {
  const Floats at = larger(every(-200.0F), x);
  const Floats high = every(1.44269504F), low = every(1.92596299e-8F);
  const Floats n = nearest_integer(at * high);
  const Floats r = fused(at, low, fused_minus(at, high, n));
  return scaled(power_of_two_near_zero(r), n);
}

/// The transformation of logits by a kernel without a cap: the identity.
struct Uncapped {
  explicit Uncapped(const LossTerms& /*terms*/) {}
  TRIREME_PART Floats of(const Floats& logits) const { return logits; }
  /// The logits that the loss uses.
  TRIREME_PART Floats logits(const Floats& x) const { return x; }
  TRIREME_PART Floats difference(const Floats& x, const Floats& from) const { return x - from; }
  /// Of a logit, from the gradient of what the loss sees.
  TRIREME_PART Floats gradient(const Floats& outer, const Floats& /*x*/) const { return outer; }
};

/// Within 2 units in the last place, also near 0; keeps NaN. Source: Cephes, tanhf.c.
TRIREME_PART inline Floats tanh_of(const Floats& x) {
  const Floats magnitude = larger(x, zeros() - x), square = x * x;
  Floats p = every(-5.70498872745e-3F);
  p = fused(p, square, every(2.06390887954e-2F));
  p = fused(p, square, every(-5.37397155531e-2F));
  p = fused(p, square, every(1.33314422036e-1F));
  p = fused(p, square, every(-3.33332819422e-1F));
  const Floats gap = every(2.0F) * reciprocal(every(1.0F) + exponential(magnitude + magnitude));
  const Floats far = where_less(x, zeros(), gap - every(1.0F), every(1.0F) - gap);
  return where_less(magnitude, every(0.625F), fused(p * square, x, x), far);
}

/// x is the logit in units of the cap, tanh(logit / c).
struct Capped {
  TRIREME_PART explicit Capped(const LossTerms& terms)
      : cap(every(terms.softcap)), inverse(every(1.0F / terms.softcap)) {}
  TRIREME_PART Floats of(const Floats& logits) const { return tanh_of(logits * inverse); }
  TRIREME_PART Floats logits(const Floats& x) const { return cap * x; }
  TRIREME_PART Floats difference(const Floats& x, const Floats& from) const {
    return cap * (x - from);
  }
  TRIREME_PART Floats gradient(const Floats& outer, const Floats& x) const {
    return outer * fused_from(x, x, every(1.0F));
  }

  Floats cap, inverse;
};

template <bool capped>
using CapOf = std::conditional_t<capped, Capped, Uncapped>;

/// The statistics of a row: the largest logit as the loss sees it (a cap keeps the order of
/// logits), and the sum of exponentials of the differences from it.
struct RowSums {
  Floats largest;
  float exponentials;
};

/// Sums partial sums of 512, so that large vocabularies do not lose precision.
template <class T, class Cap>
TRIREME_PART inline RowSums sums_of_row(const T* row, const Cap& cap, std::int64_t V) {
  const Mask all = first_lanes(lanes);
  constexpr std::int64_t at_once = 4 * lanes, together = 8 * at_once;
  Floats most[4];
  for (Floats& one : most) one = every(-std::numeric_limits<float>::infinity());
  std::int64_t v = 0;
  for (; v + at_once <= V; v += at_once)
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < 4; ++r)  // NaN is ignored in the maximum
      most[r] = larger(load_floats(row + v + r * lanes, all), most[r]);
  for (; v < V; v += lanes) {
    const Mask keep = first_lanes(V - v);
    most[0] = where(keep, larger(load_floats(row + v, keep), most[0]), most[0]);
  }
  const Floats largest =
      cap.of(every(largest_lane(larger(larger(most[0], most[1]), larger(most[2], most[3])))));

  Floats sums = zeros();
  for (std::int64_t begin = 0; begin < V; begin += together) {
    const std::int64_t end = std::min(V, begin + together);
    Floats sum[4];
    for (Floats& one : sum) one = zeros();
    for (v = begin; v + at_once <= end; v += at_once)
#pragma GCC unroll 4
      for (std::int64_t r = 0; r < 4; ++r) {
        const Floats x = cap.of(load_floats(row + v + r * lanes, all));
        sum[r] = sum[r] + exponential_below_one(cap.difference(x, largest));
      }
    for (; v < end; v += lanes) {
      const Mask keep = first_lanes(end - v);
      const Floats x = cap.of(load_floats(row + v, keep));
      sum[0] = where(keep, sum[0] + exponential_below_one(cap.difference(x, largest)), sum[0]);
    }
    sums = sums + ((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
  return {largest, sum_of_lanes(sums)};
}

/// gradient = factor · e^(logit - largest), times the slope of the cap.
template <class T, class D, class Cap>
TRIREME_PART inline void gradient_of_row(D* gradient,
                                         const T* row,
                                         const Cap& cap,
                                         const Floats& largest,
                                         float factor,
                                         std::int64_t V) {
  constexpr std::int64_t at_once = 4 * lanes;
  const Floats times = every(factor);
  const auto made_at = [&](std::int64_t v, Mask keep) TRIREME_PART {
    const Floats x = cap.of(load_floats(row + v, keep));
    return cap.gradient(exponential_below_one(cap.difference(x, largest)) * times, x);
  };
  std::int64_t v = 0;
  for (; v + at_once <= V; v += at_once) {
    Floats made[4];
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < 4; ++r) made[r] = made_at(v + r * lanes, first_lanes(lanes));
#pragma GCC unroll 2
    for (std::int64_t r = 0; r < 4; r += 2)
      store_pair(gradient + v + r * lanes, made[r], made[r + 1]);
  }
  for (; v < V; v += lanes) {
    const Mask keep = first_lanes(V - v);
    store_floats(gradient + v, made_at(v, keep), keep);
  }
}

/// Losses of rows, and their gradients unless `gradients` is null.
template <bool capped, class T, class D>
TRIREME_KERNEL void cross_entropy(float* losses,
                                  D* gradients,
                                  const T* logits,
                                  const std::int32_t* targets,
                                  const LossTerms* terms,
                                  float scale,
                                  std::int64_t rows,
                                  std::int64_t V) {
  const CapOf<capped> cap(*terms);
  const float twice_z_loss = 2.0F * terms->z_loss;
  for (std::int64_t r = 0; r < rows; ++r, logits += V) {
    D* gradient = gradients == nullptr ? nullptr : gradients + r * V;
    if (targets[r] < 0) {
      losses[r] = 0;
      if (gradient != nullptr)
        std::fill(gradient, gradient + V, from_float<D>(0.0F));
      continue;
    }
    const RowSums row = sums_of_row(logits, cap, V);
    const float log_sum = std::log(row.exponentials);
    const Floats target = cap.of(every(to_float(logits[targets[r]])));
    const Floats difference = cap.difference(target, row.largest);
    losses[r] = log_sum - first_lane(difference);
    if (gradient == nullptr)
      continue;
    float factor = scale / row.exponentials;
    if (twice_z_loss > 0)
      factor *= 1.0F + twice_z_loss * (first_lane(cap.logits(row.largest)) + log_sum);
    gradient_of_row(gradient, logits, cap, row.largest, factor, V);
    const float likelihood = first_lane(exponential_below_one(difference));
    gradient[targets[r]] =
        from_float<D>(first_lane(cap.gradient(every(likelihood * factor - scale), target)));
  }
}

TRIREME_KERNEL inline void cap_logits(float* logits, const LossTerms* terms, std::int64_t count) {
  const Capped cap(*terms);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const Mask keep = first_lanes(count - i);
    store_floats(logits + i, cap.logits(cap.of(load_floats(logits + i, keep))), keep);
  }
}

}  // namespace
}  // namespace trireme::ops::cpu::TRIREME_LEVEL
