// SPDX-License-Identifier: Apache-2.0
#include "emulated_gpu/dnn_attention.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "base/dtype.hpp"

#include "emulated_gpu/touch.hpp"

namespace emulated::dnn {
namespace {

using trireme::Bf16;

float rounded(float value) {
  return static_cast<float>(Bf16(value));
}

std::size_t place(const Tensor& t, std::int64_t b, std::int64_t h, std::int64_t row) {
  return static_cast<std::size_t>(b * t.stride[0] + h * t.stride[1] + row * t.stride[2]);
}

void expect_touchable(std::initializer_list<const Tensor*> tensors, std::size_t element) {
  for (const Tensor* t : tensors)
    for (std::int64_t b = 0; b < t->dim[0]; ++b)
      for (std::int64_t h = 0; h < t->dim[1]; ++h)
        for (std::int64_t row = 0; row < t->dim[2]; ++row)
          touch(static_cast<const std::byte*>(t->data) + place(*t, b, h, row) * element,
                static_cast<std::size_t>(t->dim[3]) * element, "tensor of an attention");
}

/// The rows of one head as fp32, [time, channels].
class Rows {
 public:
  Rows(std::int64_t time, std::int64_t channels)
      : channels_(channels), values_(static_cast<std::size_t>(time * channels)) {}
  Rows(const Tensor& t, std::int64_t b, std::int64_t h) : Rows(t.dim[2], t.dim[3]) {
    for (std::int64_t row = 0; row < t.dim[2]; ++row) {
      const Bf16* from = static_cast<const Bf16*>(t.data) + place(t, b, h, row);
      for (std::int64_t c = 0; c < channels_; ++c) (*this)[row][c] = static_cast<float>(from[c]);
    }
  }

  float* operator[](std::int64_t row) { return values_.data() + row * channels_; }
  const float* operator[](std::int64_t row) const { return values_.data() + row * channels_; }

  void store(const Tensor& t, std::int64_t b, std::int64_t h) const {
    for (std::int64_t row = 0; row < t.dim[2]; ++row) {
      Bf16* to = static_cast<Bf16*>(t.data) + place(t, b, h, row);
      for (std::int64_t c = 0; c < channels_; ++c) to[c] = Bf16((*this)[row][c]);
    }
  }

 private:
  std::int64_t channels_;
  std::vector<float> values_;
};

float dot(const float* a, const float* b, std::int64_t count) {
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add(float* to, const float* from, float factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

float& stat(const Tensor& stats, std::int64_t b, std::int64_t h, std::int64_t row) {
  return static_cast<float*>(stats.data)[place(stats, b, h, row)];
}

}  // namespace

void forward(const Forward& f) {
  expect_touchable({&f.q, &f.k, &f.v, &f.out}, sizeof(Bf16));
  expect_touchable({&f.stats}, sizeof(float));
  const auto [batch, heads, time, channels] = f.q.dim;
  std::vector<float> scores(static_cast<std::size_t>(time));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      const Rows q(f.q, b, h), k(f.k, b, h), v(f.v, b, h);
      Rows out(time, channels);
      for (std::int64_t t = 0; t < time; ++t) {
        float largest = -std::numeric_limits<float>::infinity();
        for (std::int64_t s = 0; s <= t; ++s) {
          scores[static_cast<std::size_t>(s)] = f.scale * dot(q[t], k[s], channels);
          largest = std::max(largest, scores[static_cast<std::size_t>(s)]);
        }
        float sum = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          const float e = std::exp(scores[static_cast<std::size_t>(s)] - largest);
          sum += e;
          add(out[t], v[s], rounded(e), channels);
        }
        for (std::int64_t c = 0; c < channels; ++c) out[t][c] /= sum;
        stat(f.stats, b, h, t) = largest + std::log(sum);
      }
      out.store(f.out, b, h);
    }
}

/// Source: Dao et al. 2022, appendix B.
void backward(const Backward& g) {
  expect_touchable({&g.q, &g.k, &g.v, &g.out, &g.dout, &g.dq, &g.dk, &g.dv}, sizeof(Bf16));
  expect_touchable({&g.stats}, sizeof(float));
  const auto [batch, heads, time, channels] = g.q.dim;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      const Rows q(g.q, b, h), k(g.k, b, h), v(g.v, b, h), out(g.out, b, h), dout(g.dout, b, h);
      Rows dq(time, channels), dk(time, channels), dv(time, channels);
      for (std::int64_t t = 0; t < time; ++t) {
        const float delta = dot(dout[t], out[t], channels);
        const float stats = stat(g.stats, b, h, t);
        for (std::int64_t i = 0; i <= t; ++i) {
          const std::int64_t s = g.in_order ? i : t - i;
          const float p = std::exp(g.scale * dot(q[t], k[s], channels) - stats);
          add(dv[s], dout[t], rounded(p), channels);
          const float ds = rounded(p * (dot(dout[t], v[s], channels) - delta)) * g.scale;
          add(dq[t], k[s], ds, channels);
          add(dk[s], q[t], ds, channels);
        }
      }
      dq.store(g.dq, b, h);
      dk.store(g.dk, b, h);
      dv.store(g.dv, b, h);
    }
}

}  // namespace emulated::dnn
