// SPDX-License-Identifier: Apache-2.0
// The norm of heads and their rotation sixteen channels at a time: rows forward and backward, and
// the sums of the gains' gradients over rows. A head is taken as two halves, which the rotation
// mixes; without one they stay apart. Included once per level (for_each_level.hpp). Contract and
// formulas: ops/head_norm.hpp.
//
// Shapes: a packed row begins with [heads, channels], heads of queries first; raw = those before
// the norm; rstd = [rows, heads]; angles of a row = [cosines of half, sines of half].
// 1. The sum of a head runs over lanes of sixteen channels in order, then over the lanes: it
//    depends on `channels` alone.
// 2. Channels beyond the half are read as zero and never written, so a half need not be a multiple
//    of sixteen.
// 3. Rows are independent of each other; the caller divides them among threads. Sums over rows
//    (sum_gain_terms) are of a run of rows that does not depend on the number of threads.

namespace trireme::ops::cpu::TRIREME_LEVEL {
namespace {

/// Channels j to j + 16 of both halves of a head.
struct Halves {
  Floats first, second;
};

/// Masks of the channels that exist.
struct HalvesAt {
  std::int64_t j, half;
  Mask first, second;

  TRIREME_PART HalvesAt(const HeadNorm& all, std::int64_t from)
      : j(from),
        half(half_of(all)),
        first(first_lanes(half - j)),
        second(first_lanes(all.channels() - half - j)) {}

  template <class T>
  TRIREME_PART Halves load(const T* head) const {
    return {load_floats(head + j, first), load_floats(head + half + j, second)};
  }
  template <class T>
  TRIREME_PART void store(T* head, const Halves& x) const {
    store_floats(head + j, x.first, first);
    store_floats(head + half + j, x.second, second);
  }
  template <class T>
  TRIREME_PART Halves load_gains(const T* gain) const {
    return gain != nullptr ? load(gain) : Halves{every(1.0F), every(1.0F)};
  }
  /// Rotates by the angles of a row, cosines first; null: no rotation.
  template <bool back>
  TRIREME_PART Halves turned(const Halves& x, const float* angles) const {
    if (angles == nullptr)
      return x;
    const auto [c, s] = load(angles);
    if constexpr (back)
      return {fused(x.second, s, x.first * c), fused_from(x.first, s, x.second * c)};
    else
      return {fused_from(x.second, s, x.first * c), fused(x.first, s, x.second * c)};
  }
};

/// One row in place: y = rotate(x s gain) with s = 1 / sqrt(mean(x^2) + epsilon). Where `raw` is
/// not null, x and s are kept there and in `rstd` for backward; the copy is made before x is
/// overwritten.
template <class T>
TRIREME_KERNEL void norm_heads(
    T* row, T* raw, float* rstd, const float* angles, const HeadNorm& all) {
  const std::int64_t channels = all.channels();
  for (std::int64_t h = 0; h < all.heads(); ++h) {
    T* head = row + h * channels;
    Floats squares = zeros();
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const Floats x = load_floats(head + c, first_lanes(channels - c));
      squares = fused(x, x, squares);
    }
    const float mean = sum_of_lanes(squares) / static_cast<float>(channels);
    const float s = 1.0F / std::sqrt(mean + all.epsilon);
    if (raw != nullptr) {
      std::copy(head, head + channels, raw + h * channels);
      rstd[h] = s;
    }
    const Floats scale = every(s);
    for (std::int64_t j = 0; j < half_of(all); j += lanes) {
      const HalvesAt at(all, j);
      const Halves x = at.load(head), gain = at.load_gains(all.gain_of<T>(h));
      at.store(head, at.turned<false>(
                         {x.first * scale * gain.first, x.second * scale * gain.second}, angles));
    }
  }
}

/// One row in place: dx = s (u - xhat mean(u xhat)) with u = dz gain, xhat = x s; dz is the
/// gradient, rotated back. u is computed twice instead of stored: this takes no memory, and the
/// second pass finds its operands in the first-level cache.
template <class T>
TRIREME_KERNEL void norm_heads_backward(
    T* d_row, const T* raw, const float* rstd, const float* angles, const HeadNorm& all) {
  const std::int64_t channels = all.channels();
  for (std::int64_t h = 0; h < all.heads(); ++h) {
    T* d = d_row + h * channels;
    const T* from = raw + h * channels;
    const T* gain = all.gain_of<T>(h);
    const Floats s = every(rstd[h]);
    const auto gradient = [&](const HalvesAt& at) TRIREME_PART {
      const Halves dz = at.turned<true>(at.load(d), angles), g = at.load_gains(gain);
      return Halves{dz.first * g.first, dz.second * g.second};
    };
    Floats products = zeros();
    for (std::int64_t j = 0; j < half_of(all); j += lanes) {
      const HalvesAt at(all, j);
      const Halves u = gradient(at), x = at.load(from);
      products = fused(u.first, x.first * s, products);
      products = fused(u.second, x.second * s, products);
    }
    const Floats mean = every(sum_of_lanes(products) / static_cast<float>(channels));
    for (std::int64_t j = 0; j < half_of(all); j += lanes) {
      const HalvesAt at(all, j);
      const Halves u = gradient(at), x = at.load(from);
      at.store(d, {s * fused_from(x.first * s, mean, u.first),
                   s * fused_from(x.second * s, mean, u.second)});
    }
  }
}

/// The sums of dz xhat over rows [begin, end) and heads [head, last_head), of the channels j to
/// j + 16 of both halves. `first` and `second` are overwritten, 16 fp32 each.
template <class T>
TRIREME_KERNEL void sum_gain_terms(float* first,
                                   float* second,
                                   const T* d_packed,
                                   const T* raw,
                                   const float* rstd,
                                   const HeadNorm& all,
                                   std::int64_t begin,
                                   std::int64_t end,
                                   std::int64_t head,
                                   std::int64_t last_head,
                                   std::int64_t j) {
  const std::int64_t channels = all.channels();
  const HalvesAt at(all, j);
  Halves sum{zeros(), zeros()};
  for (std::int64_t r = begin; r < end; ++r) {
    const float* angles = all.angles_of(r);
    const T* d = d_packed + r * all.shape.stride;
    const T* kept = raw + r * all.heads() * channels;
    for (std::int64_t h = head; h < last_head; ++h) {
      const Halves dz = at.turned<true>(at.load(d + h * channels), angles);
      const Halves x = at.load(kept + h * channels);
      const Floats s = every(rstd[r * all.heads() + h]);
      sum.first = fused(dz.first, x.first * s, sum.first);
      sum.second = fused(dz.second, x.second * s, sum.second);
    }
  }
  store_floats(first, sum.first);
  store_floats(second, sum.second);
}

}  // namespace
}  // namespace trireme::ops::cpu::TRIREME_LEVEL
