// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary.hpp"

#include <cmath>
#include <numbers>

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::Direction;
using ops::RotaryScaling;
using ops::RotaryShape;

/// Rows of `stride` elements whose first heads rotate by position · frequency.
Values turned(Values x,
              const std::vector<std::int64_t>& positions,
              const RotaryShape& s,
              double theta,
              double direction) {
  const std::int64_t half = s.head_channels / 2;
  for (std::size_t r = 0; r < positions.size(); ++r)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t j = 0; j < half; ++j) {
        const double angle =
            direction * static_cast<double>(positions[r]) *
            std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(2 * half));
        const auto first =
            r * static_cast<std::size_t>(s.stride) + static_cast<std::size_t>(2 * h * half + j);
        const std::size_t second = first + static_cast<std::size_t>(half);
        const double a = x[first], b = x[second];
        x[first] = a * std::cos(angle) - b * std::sin(angle);
        x[second] = b * std::cos(angle) + a * std::sin(angle);
      }
  return x;
}

class RotaryTest : public OpsTest {
 protected:
  Tensor table(std::int64_t positions, std::int64_t channels, double theta) {
    const auto made = ops::rotary_table(positions, channels, theta, {});
    return tensor(DType::f32, Values(made.begin(), made.end()));
  }
};

TEST_P(RotaryTest, TurnsAsTheReferenceDoesAndBack) {
  for (const RotaryShape& s : {RotaryShape{1, 1, 2, 2}, RotaryShape{7, 3, 2, 8},
                               RotaryShape{33, 5, 6, 42}, RotaryShape{130, 3, 64, 256}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", s.time, s.heads, s.head_channels));
    const std::int64_t rows = 2 * s.time;
    std::vector<std::int64_t> positions;
    for (std::int64_t r = 0; r < rows; ++r) positions.push_back(r % s.time);
    const auto values = rounded_to(dtype(), normals(1, rows * s.stride));
    const auto angles = table(s.time, s.head_channels, 100);
    for (const Direction direction : {Direction::forward, Direction::inverse}) {
      auto packed = tensor(dtype(), values);
      run(
          ops::Rotate{
              .packed = packed.view(), .table = angles.view(), .shape = s, .direction = direction},
          stream());
      expect_near(packed.values(),
                  turned(values, positions, s, 100, direction == Direction::forward ? 1 : -1),
                  tolerance().elementwise, "turned");
    }
  }
}

/// The gradient of a weighted sum of rotated values.
TEST(RotaryReference, TurningBackIsTheGradient) {
  const RotaryShape s{4, 2, 6, 15};
  const std::vector<std::int64_t> positions{0, 1, 2, 3};
  const auto x = normals(1, 60), weights = normals(2, 60);
  const auto weighted = [&](const Values& at) {
    const Values y = turned(at, positions, s, 50, 1);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
    return sum;
  };
  expect_gradient(weighted, x, turned(weights, positions, s, 50, -1), "dx");
}

TEST_P(RotaryTest, RowsAtGivenPositionsHaveTheBitsOfWholeSequences) {
  const RotaryShape s{40, 2, 10, 25};
  const auto values = rounded_to(dtype(), normals(1, 40 * 25));
  const auto angles = table(40, 10, 1e4);
  auto whole = tensor(dtype(), values);
  run(ops::Rotate{.packed = whole.view(),
                  .table = angles.view(),
                  .shape = s,
                  .direction = Direction::forward},
      stream());
  const Values all = whole.values();
  const std::vector<std::size_t> picked{39, 0, 7};
  Values rows, places;
  for (const std::size_t p : picked) {
    rows.insert(rows.end(), values.begin() + static_cast<std::ptrdiff_t>(p * 25),
                values.begin() + static_cast<std::ptrdiff_t>((p + 1) * 25));
    places.push_back(static_cast<double>(p));
  }
  auto single = tensor(dtype(), rows);
  const RotaryShape one{1, 2, 10, 25};
  run(ops::Rotate{.packed = single.view(),
                  .table = angles.view(),
                  .positions = tensor(DType::i32, places).view(),
                  .shape = one,
                  .direction = Direction::forward},
      stream());
  const Values got = single.values();
  for (std::size_t i = 0; i < picked.size(); ++i)
    for (std::size_t c = 0; c < 25; ++c) EXPECT_EQ(got[i * 25 + c], all[picked[i] * 25 + c]);
}

TEST_P(RotaryTest, ProductsOfWhatIsTurnedDependOnTheDistanceAlone) {
  const RotaryShape s{60, 1, 16, 16};
  const auto one = rounded_to(DType::f32, normals(1, 16)), other = normals(2, 16);
  Values queries, keys;
  for (int t = 0; t < 60; ++t) {
    queries.insert(queries.end(), one.begin(), one.end());
    keys.insert(keys.end(), other.begin(), other.end());
  }
  auto q = tensor(DType::f32, queries), k = tensor(DType::f32, keys);
  const auto angles = table(60, 16, 1e4);
  run(
      ops::Rotate{
          .packed = q.view(), .table = angles.view(), .shape = s, .direction = Direction::forward},
      stream());
  run(
      ops::Rotate{
          .packed = k.view(), .table = angles.view(), .shape = s, .direction = Direction::forward},
      stream());
  const Values qv = q.values(), kv = k.values();
  const auto dot = [&](std::size_t i, std::size_t j) {
    double sum = 0;
    for (std::size_t c = 0; c < 16; ++c) sum += qv[i * 16 + c] * kv[j * 16 + c];
    return sum;
  };
  EXPECT_NEAR(dot(20, 3), dot(57, 40), 1e-5);
  EXPECT_GT(std::abs(dot(20, 3) - dot(20, 4)), 1e-3);
}

TEST_P(RotaryTest, DoesNotDependOnThreads) {
  const RotaryShape s{300, 3, 32, 160};
  const auto values = normals(1, 300LL * 160);
  const auto angles = table(300, 32, 1e4);
  expect_same_on_threads([&] {
    auto packed = tensor(dtype(), values);
    run(ops::Rotate{.packed = packed.view(),
                    .table = angles.view(),
                    .shape = s,
                    .direction = Direction::forward},
        stream());
    return packed.bytes();
  });
}

TEST_P(RotaryTest, RejectsWrongViews) {
  auto packed = tensor(dtype(), 32);
  const auto angles = table(4, 4, 1e4);
  const auto rotate = [&](const RotaryShape& s, ConstView positions) {
    run(ops::Rotate{.packed = packed.view(),
                    .table = angles.view(),
                    .positions = positions,
                    .shape = s,
                    .direction = Direction::forward},
        stream());
  };
  EXPECT_NO_THROW(rotate({4, 2, 4, 8}, {}));
  EXPECT_THROW(rotate({4, 2, 3, 8}, {}), ContractError);
  EXPECT_THROW(rotate({4, 3, 4, 8}, {}), ContractError);
  EXPECT_THROW(rotate({3, 2, 4, 8}, {}), ContractError);
  EXPECT_THROW(rotate({8, 1, 4, 4}, {}), ContractError);
  EXPECT_THROW(rotate({1, 2, 4, 8}, tensor(DType::i32, Values{0, 1}).view()), ContractError);
}

TEST(RotaryFrequencies, WithoutScalingTheyAreAGeometricSeries) {
  const auto f = ops::rotary_frequencies(8, 10000, {});
  ASSERT_EQ(f.size(), 4U);
  for (std::size_t j = 0; j < 4; ++j)
    EXPECT_NEAR(f[j], std::pow(10.0, -static_cast<double>(j)), 1e-15);
}

/// Llama 3.1's rule as published, in terms of wavelengths.
TEST(RotaryFrequencies, ScalingDividesLongWavelengths) {
  const RotaryScaling scaling{.factor = 32};
  const auto plain = ops::rotary_frequencies(64, 500000, {});
  const auto scaled = ops::rotary_frequencies(64, 500000, scaling);
  int kept = 0, divided = 0, between = 0;
  for (std::size_t j = 0; j < plain.size(); ++j) {
    const double wavelength = 2 * std::numbers::pi / plain[j];
    double expected = plain[j];
    if (wavelength > 8192.0) {
      expected = plain[j] / 32;
      ++divided;
    } else if (wavelength > 8192.0 / 4) {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      expected = (1 - smooth) * plain[j] / 32 + smooth * plain[j];
      ++between;
    } else {
      ++kept;
    }
    EXPECT_NEAR(scaled[j], expected, 1e-12 * expected) << j;
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(between, 0);
}

/// As in transformers (modeling_rope_utils.py, _compute_yarn_parameters).
TEST(RotaryFrequencies, YarnDividesThoseOfFewRotationsAndLinearAll) {
  RotaryScaling scaling{.factor = 4, .original_context = 64, .type = ops::RotaryScalingType::yarn};
  const auto plain = ops::rotary_frequencies(16, 10000, {});
  const auto yarn = ops::rotary_frequencies(16, 10000, scaling);
  const double share[] = {1, 2.0 / 3, 1.0 / 3, 0, 0, 0, 0, 0};
  scaling.type = ops::RotaryScalingType::linear;
  const auto linear = ops::rotary_frequencies(16, 10000, scaling);
  for (std::size_t j = 0; j < plain.size(); ++j) {
    EXPECT_NEAR(yarn[j] / plain[j], share[j] + (1 - share[j]) / 4, 1e-12) << j;
    EXPECT_NEAR(linear[j] / plain[j], 0.25, 1e-12) << j;
  }
}

TEST(RotaryTable, IsScaledByTheAttentionFactor) {
  const auto plain = ops::rotary_table(3, 4, 10000, {});
  const auto scaled = ops::rotary_table(3, 4, 10000, {.attention_factor = 2});
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], 2 * plain[i]);
}

TRIREME_ON_BACKENDS(RotaryTest);

}  // namespace
}  // namespace trireme::test
