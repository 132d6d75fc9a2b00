// SPDX-License-Identifier: Apache-2.0
#include "ops/low_rank.hpp"

#include <cmath>
#include <limits>

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

class LowRankTest : public OpsTest {
 protected:
  Values orthonormalized(const Values& rows, std::int64_t count) {
    const auto tensor_of_rows = tensor(DType::f32, rows);
    run(ops::Orthonormalize{.rows = tensor_of_rows.view(), .count = count}, stream());
    return tensor_of_rows.values();
  }
};

double dot(const Values& rows, std::size_t length, std::size_t i, std::size_t j) {
  double sum = 0;
  for (std::size_t k = 0; k < length; ++k) sum += rows[i * length + k] * rows[j * length + k];
  return sum;
}

void expect_orthonormal(const Values& rows, std::size_t count) {
  const std::size_t length = rows.size() / count;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      EXPECT_NEAR(dot(rows, length, i, j), i == j ? 1 : 0, 1e-6) << i << " " << j;
}

TEST_P(LowRankTest, MakesRowsOrthonormalAndKeepsTheirSpaces) {
  for (const auto& [count, length] : {std::pair{1, 2}, {1, 700}, {2, 3}, {4, 130}, {7, 1000}}) {
    const Values before = rounded_to(DType::f32, normals(count, count * length, 1e-3));
    const Values after = orthonormalized(before, count);
    expect_orthonormal(after, static_cast<std::size_t>(count));
    // Each original row i is a linear combination of the result's rows 0 to i.
    const auto size = static_cast<std::size_t>(length);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      for (std::size_t k = 0; k < size; ++k) {
        double sum = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          double part = 0;
          for (std::size_t l = 0; l < size; ++l) part += before[i * size + l] * after[j * size + l];
          sum += part * after[j * size + k];
        }
        EXPECT_NEAR(sum, before[i * size + k], 1e-8);
      }
  }
}

TEST_P(LowRankTest, StaysOrthonormalWhereRowsAreNearlyParallel) {
  Values rows = rounded_to(DType::f32, normals(5, 3 * 200));
  for (std::size_t k = 0; k < 200; ++k) rows[200 + k] = rows[k] + 1e-4 * rows[400 + k];
  expect_orthonormal(orthonormalized(rows, 3), 3);
}

TEST_P(LowRankTest, ReplacesRowsThatSayNothing) {
  Values rows = rounded_to(DType::f32, normals(6, 6 * 100));
  for (std::size_t k = 0; k < 100; ++k) {
    rows[100 + k] = 2 * rows[k];  // linearly depends on row 0
    rows[200 + k] = 0;
    rows[400 + k] = 1e-42;
  }
  rows[311] = std::numeric_limits<double>::quiet_NaN();
  rows[522] = std::numeric_limits<double>::infinity();
  const Values made = orthonormalized(rows, 6);
  expect_orthonormal(made, 6);
  EXPECT_EQ(orthonormalized(rows, 6), made);  // deterministic
  expect_orthonormal(orthonormalized(Values(300), 3), 3);
  // The reciprocal of such a small length is infinite in fp32.
  for (const double tiny : {1e-45, 1e-40, 1e-38})
    expect_orthonormal(orthonormalized(Values(300, tiny), 3), 3);
}

TEST_P(LowRankTest, ReplacesByRowsThatAreIndependent) {
  for (std::int64_t length = 2; length <= 24; ++length)
    for (std::int64_t count = 1; count < length; ++count)
      expect_orthonormal(orthonormalized(Values(static_cast<std::size_t>(count * length)), count),
                         static_cast<std::size_t>(count));
}

TEST_P(LowRankTest, SubtractsAndDropsWhatIsNotFinite) {
  for (const std::size_t count : {1U, 5U, 40000U}) {
    Values rest = rounded_to(DType::f32, normals(1, static_cast<std::int64_t>(count)));
    Values term = rounded_to(DType::f32, normals(2, static_cast<std::int64_t>(count)));
    Values expected;
    for (std::size_t i = 0; i < count; ++i)
      expected.push_back(
          static_cast<double>(static_cast<float>(rest[i]) - static_cast<float>(term[i])));
    term[count / 2] = std::numeric_limits<double>::quiet_NaN();
    rest[count / 3] = -std::numeric_limits<double>::infinity();
    expected[count / 2] = expected[count / 3] = 0;
    const auto left = tensor(DType::f32, rest), sent = tensor(DType::f32, term);
    run(ops::SubtractFinite{.rest = left.view(), .term = sent.view()}, stream());
    EXPECT_EQ(left.values(), expected);
  }
}

TEST_P(LowRankTest, RefusesMoreRowsThanTheyHaveElements) {
  const auto square = tensor(DType::f32, Values(16, 1.0));
  EXPECT_THROW(run(ops::Orthonormalize{.rows = square.view(), .count = 4}, stream()),
               ContractError);
}

TRIREME_ON_BACKENDS(LowRankTest);

}  // namespace
}  // namespace trireme::test
