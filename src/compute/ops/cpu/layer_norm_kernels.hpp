// SPDX-License-Identifier: Apache-2.0
// Layer normalization sixteen channels at a time: rows forward and backward, and the sums of the
// parameters' gradients over rows. Included once per level (for_each_level.hpp). Contract and
// formulas: ops/layer_norm.hpp.
// 1. A row's mean and variance are two passes: squares of differences from the mean, which lose
//    nothing where the mean is large compared with the deviation. Sums run over lanes in order,
//    then over the lanes.
// 2. Without means nothing is subtracted (RMSNorm). Missing gains are ones, and a missing `beta` is
//    zeros.
// 3. Lanes beyond the row are zero in every sum and are not written.
// 4. A row is read from memory once: the later passes find it in the cache, where a row of some
//    thousand channels fits.

namespace trireme::ops::cpu::TRIREME_LEVEL {
namespace {

template <class T>
TRIREME_PART inline Floats load_gains(const T* gamma, std::int64_t c, Mask keep) {
  return gamma != nullptr ? load_floats(gamma + c, keep) : every(1.0F);
}

/// y = (x - mean) rstd gamma + beta of rows [begin, end), and `mean`, if there is one, and `rstd`.
template <class T>
TRIREME_KERNEL void normalize_rows(const LayerNormForward& call,
                                   std::int64_t begin,
                                   std::int64_t end) {
  const std::int64_t channels = call.channels;
  const T* gamma = call.gamma.as_optional<T>();
  const T* beta = call.beta.as_optional<T>();
  const float inverse = 1.0F / static_cast<float>(channels);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = call.normalized<T>() + r * channels;
    T* y = call.y.as<T>() + r * channels;
    Floats sum = zeros(), squares = zeros();
    float center = 0;
    if (call.centers()) {
      for (std::int64_t c = 0; c < channels; c += lanes)
        sum = sum + load_floats(x + c, first_lanes(channels - c));
      center = call.mean.as<float>()[r] = sum_of_lanes(sum) * inverse;
    }
    const Floats m = every(center);
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const Mask keep = first_lanes(channels - c);
      const Floats d = where(keep, load_floats(x + c, keep) - m, zeros());
      squares = fused(d, d, squares);
    }
    const float rstd = 1.0F / __builtin_sqrtf(sum_of_lanes(squares) * inverse + call.epsilon);
    call.rstd.as<float>()[r] = rstd;
    const Floats s = every(rstd);
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const Mask keep = first_lanes(channels - c);
      const Floats scale = s * load_gains(gamma, c, keep);
      const Floats d = load_floats(x + c, keep) - m;
      const Floats shift = beta != nullptr ? load_floats(beta + c, keep) : zeros();
      store_floats(y + c, fused(d, scale, shift), keep);
    }
  }
}

/// dx = (or +=) rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gamma, xhat = (x - mean) rstd.
/// Without means, both mean and mean(g) are omitted.
template <class T>
TRIREME_KERNEL void normalize_rows_backward(const LayerNormBackward& call,
                                            std::int64_t begin,
                                            std::int64_t end) {
  const std::int64_t channels = call.channels;
  const bool accumulate = call.accumulate;
  const T* gamma = call.gamma.as_optional<T>();
  const float inverse = 1.0F / static_cast<float>(channels);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* dy = call.dy.as<T>() + r * channels;
    const T* x = call.x.as<T>() + r * channels;
    T* to = call.dx.as<T>() + r * channels;
    const Floats m = every(call.mean_of(r)), s = every(call.rstd.as<float>()[r]);
    Floats sum = zeros(), product = zeros();
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const Mask keep = first_lanes(channels - c);
      const Floats g = load_floats(dy + c, keep) * load_gains(gamma, c, keep);
      sum = sum + g;  // zero beyond the row
      product = fused(g, (load_floats(x + c, keep) - m) * s, product);
    }
    const Floats mean_g = every(call.centers() ? sum_of_lanes(sum) * inverse : 0.0F);
    const Floats mean_p = every(sum_of_lanes(product) * inverse);
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const Mask keep = first_lanes(channels - c);
      const Floats xhat = (load_floats(x + c, keep) - m) * s;
      const Floats centered =
          fused_minus(load_floats(dy + c, keep), load_gains(gamma, c, keep), mean_g);
      const Floats inner = fused_from(xhat, mean_p, centered);
      const Floats before = accumulate ? load_floats(to + c, keep) : zeros();
      store_floats(to + c, fused(s, inner, before), keep);
    }
  }
}

/// Adds to sums over rows [begin, end) of 32 columns, of which `count` exist: of dy xhat to
/// `scale`, of dy to `shift`, 32 fp32 each. 32 columns are a cache line of bf16 and two of fp32, so
/// walking down a column wastes none of what is fetched.
template <class T>
TRIREME_KERNEL void add_norm_rows(float* scale,
                                  float* shift,
                                  const LayerNormBackward& call,
                                  std::int64_t begin,
                                  std::int64_t end,
                                  std::int64_t column,
                                  std::int64_t count) {
  const std::int64_t channels = call.channels;
  const T* dy = call.dy.as<T>();
  const T* x = call.x.as<T>();
  const Mask keep[2] = {first_lanes(count), first_lanes(count - lanes)};
  Floats products[2] = {zeros(), zeros()}, sum[2] = {zeros(), zeros()};
  for (std::int64_t r = begin; r < end; ++r) {
    const Floats m = every(call.mean_of(r)), s = every(call.rstd.as<float>()[r]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::int64_t at = r * channels + column + half * lanes;
      const Floats d = load_floats(dy + at, keep[half]);
      const Floats xhat = (load_floats(x + at, keep[half]) - m) * s;
      products[half] = fused(d, xhat, products[half]);
      sum[half] = sum[half] + d;
    }
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    float* to_scale = scale + half * lanes;
    float* to_shift = shift + half * lanes;
    store_floats(to_scale, load_floats(to_scale) + products[half]);
    store_floats(to_shift, load_floats(to_shift) + sum[half]);
  }
}

}  // namespace
}  // namespace trireme::ops::cpu::TRIREME_LEVEL
