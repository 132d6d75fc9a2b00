// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.hpp"

#include <cmath>

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::HeadNorm;

/// The options of a case apart from its shape.
struct HeadParts {
  bool gains = true, turns = true;
};
constexpr HeadParts all_head_parts[] = {{true, true}, {false, true}, {true, false}, {false, false}};

HeadNorm with(
    HeadNorm norm, ConstView query, ConstView key, ConstView table, ConstView positions = {}) {
  norm.query_gain = query;
  norm.key_gain = key;
  norm.table = table;
  norm.positions = positions;
  return norm;
}

std::size_t element(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Head by head, as head_norm.hpp defines it; other elements of a row stay unchanged. Gains are [2,
/// D], for queries and for keys, or empty; theta 0 means no rotation.
Values normalized_heads(Values x,
                        const Values& gains,
                        const std::vector<std::int64_t>& positions,
                        const HeadNorm& s,
                        double theta) {
  const std::int64_t D = s.shape.head_channels, half = D / 2;
  for (std::size_t r = 0; r < positions.size(); ++r)
    for (std::int64_t h = 0; h < s.shape.heads; ++h) {
      double* head = x.data() + r * element(s.shape.stride) + element(h * D);
      double squares = 0;
      for (std::int64_t c = 0; c < D; ++c) squares += head[c] * head[c];
      const double root =
          std::sqrt(squares / static_cast<double>(D) + static_cast<double>(s.epsilon));
      for (std::int64_t c = 0; c < D; ++c)
        head[c] *= (gains.empty() ? 1 : gains[element((h < s.query_heads ? 0 : D) + c)]) / root;
      for (std::int64_t j = 0; theta > 0 && j < half; ++j) {
        const double angle =
            static_cast<double>(positions[r]) *
            std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(D));
        const double a = head[j], b = head[half + j];
        head[j] = a * std::cos(angle) - b * std::sin(angle);
        head[half + j] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  return x;
}

struct HeadGradients {
  Values dx, d_gains;
};
/// The gradient of sum(y · dy): the transposed Jacobian of each head, element by element.
HeadGradients head_reference_backward(const Values& dy,
                                      const Values& x,
                                      const Values& gains,
                                      const std::vector<std::int64_t>& positions,
                                      const HeadNorm& s,
                                      double theta) {
  const std::int64_t D = s.shape.head_channels, half = D / 2;
  HeadGradients made{dy, Values(gains.size())};
  for (std::size_t r = 0; r < positions.size(); ++r)
    for (std::int64_t h = 0; h < s.shape.heads; ++h) {
      const std::size_t at = r * element(s.shape.stride) + element(h * D);
      Values dz(dy.begin() + static_cast<long>(at), dy.begin() + static_cast<long>(at) + D);
      for (std::int64_t j = 0; theta > 0 && j < half; ++j) {
        const double angle =
            static_cast<double>(positions[r]) *
            std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(D));
        const double a = dz[element(j)], b = dz[element(half + j)];
        dz[element(j)] = a * std::cos(angle) + b * std::sin(angle);
        dz[element(half + j)] = b * std::cos(angle) - a * std::sin(angle);
      }
      double squares = 0, product = 0;
      for (std::int64_t c = 0; c < D; ++c) squares += x[at + element(c)] * x[at + element(c)];
      const double inverse =
          1 / std::sqrt(squares / static_cast<double>(D) + static_cast<double>(s.epsilon));
      const std::size_t gain = element(h < s.query_heads ? 0 : D);
      for (std::int64_t c = 0; c < D; ++c) {
        const double xhat = x[at + element(c)] * inverse;
        if (!gains.empty()) {
          made.d_gains[gain + element(c)] += dz[element(c)] * xhat;
          dz[element(c)] *= gains[gain + element(c)];
        }
        product += dz[element(c)] * xhat / static_cast<double>(D);
      }
      for (std::int64_t c = 0; c < D; ++c)
        made.dx[at + element(c)] =
            inverse * (dz[element(c)] - x[at + element(c)] * inverse * product);
    }
  return made;
}

std::vector<std::int64_t> positions_of_sequences(std::int64_t rows, std::int64_t time) {
  std::vector<std::int64_t> positions;
  for (std::int64_t r = 0; r < rows; ++r) positions.push_back(r % time);
  return positions;
}

HeadNorm head_norm_shape(std::int64_t time,
                         std::int64_t queries,
                         std::int64_t keys,
                         std::int64_t channels) {
  // Values after the keys must not change.
  return {.shape = {.time = time,
                    .heads = queries + keys,
                    .head_channels = channels,
                    .stride = (queries + 2 * keys) * channels + 3},
          .query_heads = queries,
          .epsilon = 1e-3F};
}

class HeadNormTest : public OpsTest {
 protected:
  static constexpr double theta = 100;

  Tensor table(const HeadNorm& s) {
    const auto made = ops::rotary_table(s.shape.time, s.shape.head_channels, theta, {});
    return tensor(DType::f32, Values(made.begin(), made.end()));
  }
  /// The gain of queries or keys, or nothing.
  static View gain(const Tensor& both, const HeadParts& parts, std::int64_t which) {
    const std::int64_t D = both.view().elements / 2;
    return parts.gains ? both.view().slice(which * D, D) : View(nullptr, 0, both.view().dtype);
  }
  Values gains_of(const HeadParts& parts, std::int64_t channels) {
    Values gains = normals(3, 2 * channels, 0.5);
    for (double& g : gains) g += 1;
    return parts.gains ? rounded_to(dtype(), gains) : Values{};
  }
};

TEST_P(HeadNormTest, IsWhatTheReferenceMakesForwardAndBackward) {
  for (const HeadNorm& s : {head_norm_shape(1, 1, 1, 2), head_norm_shape(7, 3, 1, 6),
                            head_norm_shape(33, 4, 2, 38), head_norm_shape(80, 2, 2, 128)})
    for (const HeadParts& parts : all_head_parts) {
      SCOPED_TRACE(fmt::format("{} x {} x {}, gains {}, turns {}", s.shape.time, s.shape.heads,
                               s.shape.head_channels, parts.gains, parts.turns));
      const std::int64_t rows = 2 * s.shape.time, D = s.shape.head_channels;
      const auto positions = positions_of_sequences(rows, s.shape.time);
      const Values x = rounded_to(dtype(), normals(1, rows * s.shape.stride));
      const Values dy = rounded_to(dtype(), normals(2, rows * s.shape.stride));
      const Values gains = gains_of(parts, D);
      const double turns = parts.turns ? theta : 0;
      const Tensor angles = table(s);
      const View used = parts.turns ? angles.view() : View(nullptr, 0, DType::f32);
      Tensor both = tensor(dtype(), 2 * D);
      both.fill(gains);
      Tensor packed = tensor(dtype(), x), raw = tensor(dtype(), rows * s.shape.heads * D);
      Tensor rstd = tensor(DType::f32, rows * s.shape.heads);
      ops::run(
          ops::HeadNormForward{.packed = packed.view(),
                               .raw = raw.view(),
                               .rstd = rstd.view(),
                               .norm = with(s, gain(both, parts, 0), gain(both, parts, 1), used)},
          stream());
      expect_near(packed.values(), normalized_heads(x, gains, positions, s, turns),
                  tolerance().elementwise, "y");

      Tensor again = tensor(dtype(), x);  // nothing retained, the same bits
      ops::run(
          ops::HeadNormForward{.packed = again.view(),
                               .norm = with(s, gain(both, parts, 0), gain(both, parts, 1), used)},
          stream());
      EXPECT_EQ(again.bytes(), packed.bytes());

      Tensor gradient = tensor(dtype(), dy);
      const Values begun = normals(4, 2 * D);  // gradients of gains are accumulated
      Tensor d_gains = tensor(DType::f32, begun);
      const auto d_gain = [&](std::int64_t which) {
        return parts.gains ? d_gains.view().slice(which * D, D) : View(nullptr, 0, DType::f32);
      };
      ops::run(
          ops::HeadNormBackward{.d_packed = gradient.view(),
                                .d_query_gain = d_gain(0),
                                .d_key_gain = d_gain(1),
                                .raw = raw.view(),
                                .rstd = rstd.view(),
                                .norm = with(s, gain(both, parts, 0), gain(both, parts, 1), used)},
          stream());
      HeadGradients expected = head_reference_backward(dy, x, gains, positions, s, turns);
      expect_near(gradient.values(), expected.dx, tolerance().elementwise, "dx");
      expected.d_gains.resize(begun.size());
      for (std::size_t i = 0; i < begun.size(); ++i)
        expected.d_gains[i] += static_cast<double>(static_cast<float>(begun[i]));
      expect_near(d_gains.values(), expected.d_gains, tolerance().layer_norm,
                  "gradients of the gains");
    }
}

TEST(HeadNormReference, BackwardIsTheGradient) {
  const HeadNorm s = head_norm_shape(3, 2, 1, 4);
  const auto positions = positions_of_sequences(3, 3);
  const Values x = normals(1, 3 * s.shape.stride), weights = normals(2, 3 * s.shape.stride);
  const Values gains = normals(3, 8);
  const auto weighted = [&](const Values& at, const Values& gain) {
    const Values y = normalized_heads(at, gain, positions, s, 50);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
    return sum;
  };
  const HeadGradients made = head_reference_backward(weights, x, gains, positions, s, 50);
  expect_gradient([&](const Values& at) { return weighted(at, gains); }, x, made.dx, "dx");
  expect_gradient([&](const Values& at) { return weighted(x, at); }, gains, made.d_gains, "gains");
  const HeadGradients plain = head_reference_backward(weights, x, {}, positions, s, 50);
  expect_gradient([&](const Values& at) { return weighted(at, {}); }, x, plain.dx, "without gains");
}

/// By hand: a head (3, 4) has the root mean square sqrt(12.5).
TEST_P(HeadNormTest, ACaseByHand) {
  const HeadNorm s{.shape = {.time = 1, .heads = 2, .head_channels = 2, .stride = 5},
                   .query_heads = 1,
                   .epsilon = 1e-12F};
  Tensor packed = tensor(dtype(), Values{3, 4, -2, 0, 9});
  const Tensor query = tensor(dtype(), Values{1, 2}), key = tensor(dtype(), Values{-1, 1});
  ops::run(
      ops::HeadNormForward{.packed = packed.view(), .norm = with(s, query.view(), key.view(), {})},
      stream());
  const double root = std::sqrt(12.5);
  expect_near(packed.values(), {3 / root, 8 / root, std::sqrt(2.0), 0, 9}, tolerance().elementwise,
              "y");
}

TEST_P(HeadNormTest, RowsAtGivenPositionsHaveTheBitsOfWholeSequences) {
  const HeadNorm s = head_norm_shape(40, 2, 1, 10);
  const std::int64_t stride = s.shape.stride;
  const Values values = rounded_to(dtype(), normals(1, 40 * stride));
  const Tensor angles = table(s), gains = tensor(dtype(), normals(3, 20));
  const auto run = [&](const Tensor& packed, ConstView positions, std::int64_t time) {
    HeadNorm shape = s;
    shape.shape.time = time;
    ops::run(
        ops::HeadNormForward{.packed = packed.view(),
                             .norm = with(shape, gains.view().slice(0, 10),
                                          gains.view().slice(10, 10), angles.view(), positions)},
        stream());
    return packed.values();
  };
  const Values all = run(tensor(dtype(), values), {}, 40);
  const std::vector<std::int64_t> picked{39, 0, 7};
  Values rows, places;
  for (const std::int64_t p : picked) {
    rows.insert(rows.end(), values.begin() + p * stride, values.begin() + (p + 1) * stride);
    places.push_back(static_cast<double>(p));
  }
  const Values got = run(tensor(dtype(), rows), tensor(DType::i32, places).view(), 1);
  for (std::size_t i = 0; i < picked.size(); ++i)
    for (std::int64_t c = 0; c < stride; ++c)
      EXPECT_EQ(got[i * element(stride) + element(c)], all[element(picked[i] * stride + c)]);
}

TEST_P(HeadNormTest, DoesNotDependOnThreads) {
  const HeadNorm s = head_norm_shape(300, 3, 1, 64);
  const Values values = normals(1, 300 * s.shape.stride),
               gradients = normals(2, 300 * s.shape.stride);
  const Tensor angles = table(s), gains = tensor(dtype(), normals(3, 128));
  const View query = gains.view().slice(0, 64), key = gains.view().slice(64, 64);
  expect_same_on_threads([&] {
    Tensor packed = tensor(dtype(), values), d_packed = tensor(dtype(), gradients);
    Tensor raw = tensor(dtype(), 300LL * 4 * 64), rstd = tensor(DType::f32, 300LL * 4);
    Tensor d_gains = tensor(DType::f32, Values(128));
    ops::run(ops::HeadNormForward{.packed = packed.view(),
                                  .raw = raw.view(),
                                  .rstd = rstd.view(),
                                  .norm = with(s, query, key, angles.view())},
             stream());
    ops::run(ops::HeadNormBackward{.d_packed = d_packed.view(),
                                   .d_query_gain = d_gains.view().slice(0, 64),
                                   .d_key_gain = d_gains.view().slice(64, 64),
                                   .raw = raw.view(),
                                   .rstd = rstd.view(),
                                   .norm = with(s, query, key, angles.view())},
             stream());
    return joined({&packed, &d_packed, &d_gains});
  });
}

TEST_P(HeadNormTest, RejectsWrongViews) {
  const HeadNorm s{.shape = {.time = 4, .heads = 2, .head_channels = 4, .stride = 8},
                   .query_heads = 1,
                   .epsilon = 1e-5F};
  Tensor packed = tensor(dtype(), 32), gain = tensor(dtype(), 4), longer = tensor(dtype(), 5);
  const Tensor angles = table(s);
  Tensor raw = tensor(dtype(), 32), rstd = tensor(DType::f32, 8);
  const auto forward = [&](const HeadNorm& shape, View keep, View deviations, ConstView query,
                           ConstView key) {
    ops::run(ops::HeadNormForward{.packed = packed.view(),
                                  .raw = keep,
                                  .rstd = deviations,
                                  .norm = with(shape, query, key, angles.view())},
             stream());
  };
  EXPECT_NO_THROW(forward(s, raw.view(), rstd.view(), gain.view(), gain.view()));
  EXPECT_THROW(forward(s, raw.view(), {}, gain.view(), gain.view()), ContractError);
  EXPECT_THROW(forward(s, {}, {}, gain.view(), {}), ContractError);
  EXPECT_THROW(forward(s, {}, {}, longer.view(), longer.view()), ContractError);
  HeadNorm other = s;
  other.query_heads = 3;
  EXPECT_THROW(forward(other, {}, {}, {}, {}), ContractError);
  other = s;
  other.shape.time = 3;
  EXPECT_THROW(forward(other, {}, {}, {}, {}), ContractError);
  other = s;
  other.epsilon = 0;
  EXPECT_THROW(forward(other, {}, {}, {}, {}), ContractError);
  EXPECT_THROW(ops::run(ops::HeadNormBackward{.d_packed = packed.view(),
                                              .raw = {},
                                              .rstd = {},
                                              .norm = with(s, {}, {}, angles.view())},
                        stream()),
               ContractError);
}

TRIREME_ON_BACKENDS(HeadNormTest);

}  // namespace
}  // namespace trireme::test
