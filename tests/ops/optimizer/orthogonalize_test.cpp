// SPDX-License-Identifier: Apache-2.0
// Orthogonalization against the same steps in double precision, and against its bounds for singular
// values. The dtype of a backend is that of the products.
#include "ops/optimizer/orthogonalize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "base/error.hpp"

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::Coefficients;
using ops::Orthogonalize;

using Triple = std::array<double, 3>;

/// The coefficients of the sources; the operation uses float copies of them.
std::vector<Triple> triples(Coefficients coefficients) {
  if (coefficients == Coefficients::newton_schulz)
    return std::vector<Triple>(5, {3.4445, -4.7750, 2.0315});
  return {{8.156554524902461, -22.48329292557795, 15.878769915207462},
          {4.042929935166739, -2.808917465908714, 0.5000178451051316},
          {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
          {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
          {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}};
}

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  Values values;

  [[nodiscard]] double operator()(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  [[nodiscard]] Matrix transposed() const {
    Matrix result{columns, rows, {}};
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t i = 0; i < rows; ++i) result.values.push_back((*this)(i, j));
    return result;
  }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, Values(static_cast<std::size_t>(a.rows * b.columns))};
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < b.columns; ++j)
        c.values[static_cast<std::size_t>(i * b.columns + j)] += a(i, k) * b(k, j);
  return c;
}

Matrix reference(Matrix x, Coefficients coefficients) {
  const bool express = coefficients == Coefficients::polar_express;
  double squares = 0;
  for (const double one : x.values) squares += one * one;
  for (double& one : x.values)
    one /= (express ? 1.01 : 1.0) * std::sqrt(squares) + (express ? 1e-6 : 1e-7);
  for (const auto& [a, b, c] : triples(coefficients)) {
    // X (a I + b XtX + c XtX XtX): multiplying from the left or the right gives the same.
    const Matrix cubed = product(product(x, x.transposed()), x);
    const Matrix fifth = product(product(x, x.transposed()), cubed);
    for (std::size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = a * x.values[i] + b * cubed.values[i] + c * fifth.values[i];
  }
  return x;
}

/// The allowed fp32 error of one element. The partial sums of an element are at most the product of
/// two norms, each at most 1.21 here, and roundings have either sign. So each of the three products
/// of a step adds one unit in the last place of that. Later steps multiply an error by their slope,
/// which is at most `a`.
double tolerance_in_fp32(Coefficients coefficients) {
  double growth = 0;
  for (const Triple& triple : triples(coefficients))
    growth = (growth + 3 * 1.21 * 1.21) * triple[0];
  return growth * 0x1.0p-23;
}

/// Squares of the singular values, by Jacobi's rotations.
Values squared_singular_values(const Matrix& x) {
  Matrix g = x.rows <= x.columns ? product(x, x.transposed()) : product(x.transposed(), x);
  const std::int64_t n = g.rows;
  const auto at = [&](std::int64_t i, std::int64_t j) -> double& {
    return g.values[static_cast<std::size_t>(i * n + j)];
  };
  for (int sweep = 0; sweep < 12; ++sweep)
    for (std::int64_t p = 0; p < n; ++p)
      for (std::int64_t q = p + 1; q < n; ++q) {
        const double angle = 0.5 * std::atan2(2 * at(p, q), at(q, q) - at(p, p));
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::int64_t k = 0; k < n; ++k) {
          const double one = at(k, p), other = at(k, q);
          at(k, p) = c * one - s * other;
          at(k, q) = s * one + c * other;
        }
        for (std::int64_t k = 0; k < n; ++k) {
          const double one = at(p, k), other = at(q, k);
          at(p, k) = c * one - s * other;
          at(q, k) = s * one + c * other;
        }
      }
  Values values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(at(i, i));
  return values;
}

/// The allowed bf16 error: norm of the difference over norm of the result. A rounding is at most
/// 2^-9 of its element, so also of a matrix' norm. The roundings of X (used in a product from both
/// sides), A, A A and P reach the next X with the factors in brackets if singular values are at
/// most 1.21. Later steps preserve errors of nearly orthogonal matrices.
double tolerance_in_bf16(Coefficients coefficients) {
  double sum = 0;
  for (const auto& [a, b, c] : triples(coefficients)) {
    const double square = 1.21 * 1.21, fourth = square * square;
    const double gram = std::abs(b) * square, squared = std::abs(c) * fourth;
    sum += 0x1.0p-9 * (1 + (gram + 2 * squared) + squared + (a + gram + squared));
  }
  return sum;
}

double norm_of(const Values& values) {
  double squares = 0;
  for (const double one : values) squares += one * one;
  return std::sqrt(squares);
}

class OrthogonalizeTest : public OpsTest {
 protected:
  Matrix run(const Matrix& x,
             Coefficients coefficients = Coefficients::newton_schulz,
             float scale = 1) {
    auto matrix = tensor(DType::f32, x.values);
    const std::int64_t bytes = Orthogonalize::scratch_bytes(x.rows, x.columns, dtype());
    const auto scratch =
        tensor(DType::f32, Values(static_cast<std::size_t>(bytes) / sizeof(float), std::nan("")));
    const Orthogonalize operation(device(), x.rows, x.columns, {5, coefficients, dtype()});
    operation(matrix.view(), View(scratch.view().data, bytes, DType::u8), scale, stream());
    return {x.rows, x.columns, matrix.values()};
  }
};

/// A large diagonal keeps square matrices away from singular ones.
Matrix random_matrix(std::int64_t rows, std::int64_t columns) {
  Matrix x{rows, columns, normals(5, rows * columns)};
  for (std::int64_t i = 0; i < std::min(rows, columns); ++i)
    x.values[static_cast<std::size_t>(i * columns + i)] +=
        2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
  x.values = rounded_to(DType::f32, x.values);
  return x;
}

TEST_P(OrthogonalizeTest, FollowsTheReferenceInDouble) {
  for (const auto coefficients : {Coefficients::newton_schulz, Coefficients::polar_express})
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {1, 7}, {9, 1}, {16, 48}, {48, 16}, {33, 33}, {65, 130}, {150, 120}}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns);
      const Matrix x = random_matrix(rows, columns);
      const Matrix expected = reference(x, coefficients), got = run(x, coefficients);
      Values difference;
      double worst = 0;
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        difference.push_back(got.values[i] - expected.values[i]);
        worst = std::max(worst, std::abs(difference.back()));
      }
      if (dtype() == DType::f32)
        EXPECT_LE(worst, tolerance_in_fp32(coefficients));
      else
        EXPECT_LE(norm_of(difference), tolerance_in_bf16(coefficients) * norm_of(expected.values));
    }
}

TEST_P(OrthogonalizeTest, BringsSingularValuesNearOneAndKeepsTheVectors) {
  for (const auto coefficients : {Coefficients::newton_schulz, Coefficients::polar_express})
    for (const auto& [rows, columns] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{16, 48}, {48, 16}, {33, 33}}) {
      const Matrix x = random_matrix(rows, columns);
      const Matrix o = run(x, coefficients);
      // bf16 changes a singular value by its own rounding and by that of the polynomial.
      const double rounding = dtype() == DType::f32 ? 0 : 0.05;
      const double least = (coefficients == Coefficients::newton_schulz ? 0.68 : 0.85) - rounding;
      const double most = (coefficients == Coefficients::newton_schulz ? 1.21 : 1.15) + rounding;
      for (const double squared : squared_singular_values(o)) {
        EXPECT_GT(squared, least * least);
        EXPECT_LT(squared, most * most);
      }
      // Xt O = V (S f(S)) Vt is symmetric if O has the same singular vectors as X.
      const Matrix both = product(x.transposed(), o);
      const double norm = std::sqrt(static_cast<double>(rows * columns));
      const double near = dtype() == DType::f32
                              ? 4 * norm * tolerance_in_fp32(coefficients)
                              : norm_of(x.values) * tolerance_in_bf16(coefficients);
      for (std::int64_t i = 0; i < columns; ++i)
        for (std::int64_t j = 0; j < i; ++j) ASSERT_NEAR(both(i, j), both(j, i), near);
    }
}

TEST_P(OrthogonalizeTest, DoesNotDependOnThreadsNorOnTheLengthOfTheMatrix) {
  const Matrix x = random_matrix(70, 300);
  const Matrix one = run(x);
  for (const int count : {1, 2, 5}) {
    omp_set_num_threads(count);
    EXPECT_EQ(run(x).values, one.values) << count;
  }
  omp_set_num_threads(max_threads);
  Matrix longer = x;
  for (double& value : longer.values) value *= 0x1p40;  // exact, and the guard value is negligible
  const Matrix same = run(longer);
  const double near =
      dtype() == DType::f32 ? tolerance_in_fp32(Coefficients::newton_schulz) : 0x1p-5;
  for (std::size_t i = 0; i < one.values.size(); ++i)
    ASSERT_NEAR(same.values[i], one.values[i], near);
}

TEST_P(OrthogonalizeTest, ScalesAndLeavesZeroAlone) {
  const Matrix x = random_matrix(16, 48);
  const Matrix once = run(x), twice = run(x, Coefficients::newton_schulz, 2);
  for (std::size_t i = 0; i < once.values.size(); ++i)
    ASSERT_EQ(twice.values[i], 2 * once.values[i]);
  EXPECT_EQ(run({3, 5, Values(15, 0)}).values, Values(15, 0));
}

TEST(Orthogonalization, CountsItsWork) {
  // Three products of 2 m n k each: 2 2 4, 2 2 2 and 2 2 4, five times.
  EXPECT_EQ(Orthogonalize::flops(2, 4, 5), 5 * 2.0 * (16 + 8 + 16));
  EXPECT_EQ(Orthogonalize::flops(4, 2, 5), 5 * 2.0 * (16 + 8 + 16));
  // A copy of X, padded to 32 elements, and two squares of 16; bf16 needs X twice.
  EXPECT_EQ(Orthogonalize::scratch_bytes(5, 4, DType::f32), 4 * (32 + 2 * 16));
  EXPECT_EQ(Orthogonalize::scratch_bytes(5, 4, DType::bf16), 2 * (2 * 32 + 2 * 16));
}

TEST_P(OrthogonalizeTest, RefusesAnotherShapeAndTooLittleScratch) {
  const Orthogonalize operation(device(), 4, 4, {.products = dtype()});
  const auto matrix = tensor(DType::f32, 16), scratch = tensor(DType::f32, 64);
  const View bytes(scratch.view().data, 256, DType::u8);
  EXPECT_THROW(operation(matrix.view().slice(0, 15), bytes, 1, stream()), ContractError);
  EXPECT_THROW(operation(matrix.view(), bytes.slice(0, 100), 1, stream()), ContractError);
}

TRIREME_ON_BACKENDS(OrthogonalizeTest);

}  // namespace
}  // namespace trireme::test
