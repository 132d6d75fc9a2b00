// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>

#include "base/round_up.hpp"

#include "ops/activations.hpp"
#include "ops/cpu/onednn/library_matmul.hpp"
#include "ops/cpu/vector_matmul.hpp"
#include "ops/cpu/x86/amx_matmul.hpp"
#include "ops/elementwise.hpp"
#include "ops/matmul_backend.hpp"
#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::Matmul;
using ops::MatmulShape;

std::string text(const MatmulShape& s) {
  return fmt::format("{}x{}x{}{}{}{}{}", s.m, s.n, s.k, s.a_transposed ? " A^T" : "",
                     s.b_transposed ? " B^T" : "", s.bias ? " bias" : "",
                     s.accumulate ? " accumulate" : "");
}

Values transposed(const Values& values, std::int64_t rows, std::int64_t columns) {
  Values result(values.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      result[static_cast<std::size_t>(j * rows + i)] =
          values[static_cast<std::size_t>(i * columns + j)];
  return result;
}

/// A B. Both factors are first transposed so that k is contiguous: strided sums take 20 times as
/// long. The last product is cached, because every variant of a case needs the same one.
const Values& product_of(const MatmulShape& s, const Values& a, const Values& b) {
  thread_local Values rows, columns, result;
  Values new_rows = s.a_transposed ? transposed(a, s.k, s.m) : a;
  Values new_columns = s.b_transposed ? b : transposed(b, s.k, s.n);
  const auto size = static_cast<std::size_t>(s.m * s.n);
  if (result.size() == size && new_rows == rows && new_columns == columns)
    return result;
  rows = std::move(new_rows);
  columns = std::move(new_columns);
  result.resize(size);
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j)
      result[static_cast<std::size_t>(i * s.n + j)] = std::inner_product(
          rows.data() + i * s.k, rows.data() + (i + 1) * s.k, columns.data() + j * s.k, 0.0);
  return result;
}

Values reference(
    const MatmulShape& s, const Values& a, const Values& b, const Values& bias, const Values& c) {
  Values result = product_of(s, a, b);
  for (std::size_t at = 0; at < result.size(); ++at) {
    if (s.bias)
      result[at] += bias[at % static_cast<std::size_t>(s.n)];
    if (s.accumulate)
      result[at] += c[at];
  }
  return result;
}

class MatmulTest : public OpsTest {
 protected:
  MatmulShape shape(std::int64_t m, std::int64_t n, std::int64_t k) {
    return {.m = m, .n = n, .k = k, .a = dtype(), .b = dtype(), .c = dtype()};
  }

  void call(const Matmul& matmul, const Tensor& a, const Tensor& b, const Tensor& bias, Tensor& c) {
    if (matmul.shape().bias)
      matmul({.a = a.view(), .b = b.view(), .bias = bias.view(), .c = c.view()}, stream());
    else
      matmul({.a = a.view(), .b = b.view(), .c = c.view()}, stream());
  }

  void check(const MatmulShape& s, const ops::ProductOptions& options = {}) {
    SCOPED_TRACE(text(s));
    const Matmul matmul(device(), s, options);
    compare(s, [&](const Tensor& a, const Tensor& b, const Tensor& bias, Tensor& c) {
      call(matmul, a, b, bias, c);
    });
  }
  /// Matmul chooses one kind of kernel; this checks any kernel.
  void check(const MatmulShape& s, Matmul::Implementation& kernel) {
    SCOPED_TRACE(text(s));
    compare(s, [&](const Tensor& a, const Tensor& b, const Tensor& bias, Tensor& c) {
      kernel.run(
          {.a = a.view(), .b = b.view(), .bias = s.bias ? bias.view() : View(), .c = c.view()},
          stream());
    });
  }

 private:
  template <class Run>
  void compare(const MatmulShape& s, const Run& run) {
    const auto av = rounded_to(s.a, normals(1, s.m * s.k));
    const auto bv = rounded_to(s.b, normals(2, s.k * s.n));
    const auto biasv = rounded_to(s.b, normals(3, s.n));
    const auto cv = rounded_to(s.c, normals(4, s.m * s.n));
    const auto a = tensor(s.a, av), b = tensor(s.b, bv), bias = tensor(s.b, biasv);
    auto c = tensor(s.c, cv);
    run(a, b, bias, c);
    expect_near(c.values(), reference(s, av, bv, biasv, cv), tolerance().matmul, "C");
  }
};

TEST_P(MatmulTest, MultipliesByHand) {
  // [1 2; 3 4] [5 6; 7 8] = [19 22; 43 50], exact in every dtype.
  auto s = shape(2, 2, 2);
  const auto a = tensor(dtype(), Values{1, 2, 3, 4}), b = tensor(dtype(), Values{5, 6, 7, 8});
  auto c = tensor(dtype(), Values{-1, -1, -1, -1});
  Matmul(device(), s)({.a = a.view(), .b = b.view(), .c = c.view()}, stream());
  EXPECT_EQ(c.values(), (Values{19, 22, 43, 50}));
  s.a_transposed = true;
  Matmul(device(), s)({.a = a.view(), .b = b.view(), .c = c.view()}, stream());
  EXPECT_EQ(c.values(), (Values{26, 30, 38, 44}));
  s.a_transposed = false;
  s.b_transposed = true;
  Matmul(device(), s)({.a = a.view(), .b = b.view(), .c = c.view()}, stream());
  EXPECT_EQ(c.values(), (Values{17, 23, 39, 53}));
  s.bias = true;
  const auto bias = tensor(dtype(), Values{100, 0});
  Matmul(device(), s)({.a = a.view(), .b = b.view(), .bias = bias.view(), .c = c.view()}, stream());
  EXPECT_EQ(c.values(), (Values{117, 23, 139, 53}));
}

TEST_P(MatmulTest, AccumulatesInFp32) {
  auto s = shape(2, 2, 2);
  s.c = DType::f32;
  s.accumulate = true;
  const auto a = tensor(dtype(), Values{1, 2, 3, 4}), b = tensor(dtype(), Values{5, 6, 7, 8});
  auto c = tensor(DType::f32, Values{1000, 0.25, 0, -50});
  const Matmul matmul(device(), s);
  matmul({.a = a.view(), .b = b.view(), .c = c.view()}, stream());
  EXPECT_EQ(c.values(), (Values{1019, 22.25, 43, 0}));
  matmul({.a = a.view(), .b = b.view(), .c = c.view()}, stream());
  EXPECT_EQ(c.values(), (Values{1038, 44.25, 86, 50}));
}

TEST_P(MatmulTest, AgreesWithReferenceAtAwkwardSizes) {
  const std::vector<std::array<std::int64_t, 3>> sizes{
      {1, 1, 1},    {1, 7, 3},     {5, 1, 2},    {3, 2, 1},      {17, 13, 29},  {64, 64, 64},
      {65, 63, 67}, {129, 257, 5}, {257, 65, 1}, {31, 300, 128}, {130, 70, 513}};
  for (const auto& [m, n, k] : sizes)
    for (int mode = 0; mode < 4; ++mode) {
      auto s = shape(m, n, k);
      s.a_transposed = (mode & 1) != 0;
      s.b_transposed = (mode & 2) != 0;
      check(s);
      s.bias = true;
      check(s);
      s.bias = false;
      s.c = DType::f32;
      check(s);
      s.accumulate = true;
      check(s);
    }
}

using Kernel = std::unique_ptr<Matmul::Implementation>;

/// All kernels that this processor can run for a shape, including those it never chooses.
std::vector<std::pair<std::string, Kernel>> kernels_for(const MatmulShape& s) {
  using ops::cpu::vectors::Vectors;
  std::vector<std::pair<std::string, Kernel>> all;
  const auto add = [&](const char* name, Vectors vectors, bool pairs) {
    if (vectors <= ops::cpu::vectors::best())
      all.emplace_back(name, ops::cpu::vectors::make_matmul(s, vectors, pairs));
  };
  add("plain", Vectors::plain, false);
  add("AVX2", Vectors::avx2, false);
  add("AVX-512", Vectors::avx512, false);
#if defined(__x86_64__)
  if (s.a == DType::bf16 && __builtin_cpu_supports("avx512bf16"))
    add("AVX-512 BF16", Vectors::avx512, true);
#endif
  if (ops::cpu::amx::multiplies(s))
    all.emplace_back("AMX", ops::cpu::amx::make_matmul(s));
  return all;
}

TEST_P(MatmulTest, EveryKernelOfThisProcessorAgreesWithReference) {
  if (device().kind() != device::Kind::cpu)
    GTEST_SKIP() << "kernels of the CPU";
  for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
           {1, 7, 3}, {17, 13, 29}, {65, 63, 67}, {257, 65, 1}, {130, 70, 513}, {32, 20, 3072}})
    for (int mode = 0; mode < 8; ++mode) {
      auto s = shape(m, n, k);
      s.bias = (mode & 1) != 0;  // of the same product as the previous mode
      s.a_transposed = (mode & 2) != 0;
      s.b_transposed = (mode & 4) != 0;
      s.c = s.bias ? dtype() : DType::f32;
      s.accumulate = !s.bias;
      for (const auto& [name, kernel] : kernels_for(s)) {
        SCOPED_TRACE(name);
        check(s, *kernel);
      }
    }
}

/// The fp32 sum of a kernel with fused multiply-add, block by block of K.
Values fused_sums(const MatmulShape& s, const Values& a, const Values& b) {
  const std::int64_t most = s.a_transposed ? 384 : 1152, line = 16;
  const std::int64_t blocks = divided_up(s.k, most);
  const std::int64_t block = rounded_up(divided_up(s.k, blocks), line);
  Values result;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      float total = 0;
      for (std::int64_t begin = 0; begin < s.k; begin += block) {
        float sum = 0;
        for (std::int64_t k = begin; k < std::min(begin + block, s.k); ++k) {
          const auto of_a = static_cast<std::size_t>(s.a_transposed ? k * s.m + i : i * s.k + k);
          const auto of_b = static_cast<std::size_t>(s.b_transposed ? j * s.k + k : k * s.n + j);
          sum = std::fma(static_cast<float>(a[of_a]), static_cast<float>(b[of_b]), sum);
        }
        total = begin == 0 ? sum : total + sum;
      }
      result.push_back(total);
    }
  return result;
}

/// Sums of fp32, and of bf16 widened to fp32, have the bits of fused additions in the order of K.
/// So they are equal on all processors with FMA. bf16 results are rounded once.
TEST_P(MatmulTest, KernelsThatFuseAdditionsHaveTheSameBits) {
  if (device().kind() != device::Kind::cpu)
    GTEST_SKIP() << "kernels of the CPU";
  auto s = shape(19, 37, 2085);
  const auto av = rounded_to(s.a, normals(1, s.m * s.k));
  const auto bv = rounded_to(s.b, normals(2, s.k * s.n));
  const auto a = tensor(s.a, av), b = tensor(s.b, bv);
  for (int mode = 0; mode < 8; ++mode) {
    s.a_transposed = (mode & 1) != 0;
    s.b_transposed = (mode & 2) != 0;
    s.c = (mode & 4) != 0 ? DType::f32 : dtype();
    const Values expected = rounded_to(s.c, fused_sums(s, av, bv));
    for (const auto& [name, kernel] : kernels_for(s)) {
#if defined(__x86_64__)
      if (name == "plain")
        continue;  // SSE2 rounds each product
#endif
      if (name == "AVX-512 BF16" || name == "AMX")
        continue;  // adds two products at a time
      auto c = tensor(s.c, s.m * s.n);
      kernel->run({.a = a.view(), .b = b.view(), .c = c.view()}, stream());
      EXPECT_EQ(c.values(), expected) << name << ", " << text(s);
    }
  }
}

TEST_P(MatmulTest, DoesNotDependOnThreads) {
  const std::vector<std::array<std::int64_t, 3>> sizes{
      {384, 128, 1024}, {100, 50, 2000}, {1, 513, 77}, {300, 260, 64}};
  for (const auto& size : sizes)
    for (const bool transposed : {false, true}) {
      const std::int64_t m = size[0], n = size[1], k = size[2];
      auto s = shape(m, n, k);
      s.a_transposed = transposed;
      s.b_transposed = !transposed;
      const auto a = tensor(dtype(), normals(1, m * k)), b = tensor(dtype(), normals(2, k * n));
      const Matmul made_for_all(device(), s);
      const auto run = [&](const Matmul& matmul) {
        auto c = tensor(dtype(), m * n);
        matmul({.a = a.view(), .b = b.view(), .c = c.view()}, stream());
        return c.bytes();
      };
      expect_same_on_threads([&] { return run(made_for_all); });
      expect_same_on_threads([&] { return run(Matmul(device(), s)); });
    }
}

TEST_P(MatmulTest, RunsOnAConcurrentStream) {
  auto s = shape(70, 90, 33);
  const auto av = rounded_to(dtype(), normals(1, s.m * s.k)),
             bv = rounded_to(dtype(), normals(2, s.k * s.n));
  const auto a = tensor(dtype(), av), b = tensor(dtype(), bv);
  auto c = tensor(dtype(), s.m * s.n);
  const Matmul matmul(device(), s);
  const auto other = device().make_stream(device::StreamMode::concurrent, "other");
  matmul({.a = a.view(), .b = b.view(), .c = c.view()}, *other);
  other->synchronize();
  expect_near(c.values(), reference(s, av, bv, {}, {}), tolerance().matmul, "C");
}

/// K spans several blocks, the last one short; rows are whole pages apart.
TEST_P(MatmulTest, AgreesWithReferenceOnLongSums) {
  for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
           {13, 37, 1030}, {25, 33, 2101}, {14, 70, 4100}, {32, 20, 3072}, {64, 40, 6208}})
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true}) {
        auto s = shape(m, n, k);
        s.a_transposed = a_transposed;
        s.b_transposed = b_transposed;
        s.bias = true;
        check(s);
        s.bias = false;
        s.c = DType::f32;
        s.accumulate = true;
        check(s);
      }
}

/// C is stored past the caches if it begins at a cache line, and normally otherwise.
TEST_P(MatmulTest, LargeResultsAgreeWithReferenceAndAnywhereInMemory) {
  auto s = shape(1100, dtype() == DType::f32 ? 1024 : 2048, 3);
  s.b_transposed = true;
  s.bias = true;
  check(s);
  const auto a = tensor(dtype(), normals(1, s.m * s.k)), b = tensor(dtype(), normals(2, s.n * s.k));
  const auto bias = tensor(dtype(), normals(3, s.n));
  s.c = DType::f32;
  constexpr std::int64_t shift = 4;
  auto c = tensor(s.c, s.m * s.n), shifted = tensor(s.c, shift + s.m * s.n);
  const Matmul matmul(device(), s);
  matmul({.a = a.view(), .b = b.view(), .bias = bias.view(), .c = c.view()}, stream());
  matmul({.a = a.view(),
          .b = b.view(),
          .bias = bias.view(),
          .c = shifted.view().slice(shift, s.m * s.n)},
         stream());
  const Values all = shifted.values();
  EXPECT_EQ(Values(all.begin() + shift, all.end()), c.values());
}

TEST_P(MatmulTest, ARowHasTheSameBitsInAnyBatchWhereRowsAreIndependent) {
  for (const auto& [n, k] : std::vector<std::array<std::int64_t, 2>>{
           {51, 257}, {33, 48}, {200, 129}, {64, 64}, {1, 2050}, {7, 1}}) {
    auto whole = shape(61, n, k);
    whole.b_transposed = true;
    if (device().kind() != device::Kind::cpu)
      GTEST_SKIP() << "this library may add up a row in another order";
    const auto a = tensor(dtype(), normals(1, 61 * k)), b = tensor(dtype(), normals(2, n * k));
    auto together = tensor(dtype(), 61 * n), apart = tensor(dtype(), 61 * n);
    Matmul(device(), whole)({.a = a.view(), .b = b.view(), .c = together.view()}, stream());
    std::int64_t row = 0;
    for (const std::int64_t rows : {1, 2, 3, 12, 13, 30}) {
      auto some = whole;
      some.m = rows;
      Matmul(device(), some)({.a = a.view().slice(row * k, rows * k),
                              .b = b.view(),
                              .c = apart.view().slice(row * n, rows * n)},
                             stream());
      row += rows;
    }
    ASSERT_EQ(row, 61);
    EXPECT_EQ(together.values(), apart.values()) << n << " columns, sums of " << k;
  }
}

/// The library's product, which benchmarks compare with ours.
TEST_P(MatmulTest, TheLibraryAloneAgreesWithReference) {
  if (GetParam().kind != device::Kind::cpu || !ops::library_multiplies(dtype())) {
    const auto b = tensor(dtype(), 33 * 48);
    EXPECT_THROW(ops::make_library_matmul(device(), shape(20, 48, 33), false, b.view()),
                 DeviceError);
    return;
  }
  for (const bool packed : {false, true})
    for (const bool accumulate : {false, true}) {
      auto s = shape(20, 48, 33);
      s.b_transposed = !accumulate;
      s.a_transposed = accumulate;
      s.accumulate = accumulate;
      s.bias = !accumulate;
      s.c = accumulate ? DType::f32 : dtype();
      const auto av = rounded_to(s.a, normals(1, s.m * s.k));
      const auto bv = rounded_to(s.b, normals(2, s.k * s.n));
      const auto biasv = rounded_to(s.b, normals(3, s.n));
      const auto cv = rounded_to(s.c, normals(4, s.m * s.n));
      const auto a = tensor(s.a, av), b = tensor(s.b, bv), bias = tensor(s.b, biasv);
      const auto c = tensor(s.c, cv);
      const auto product = ops::make_library_matmul(device(), s, packed, b.view());
      product.multiply(a.view(), bias.view(), c.view());
      expect_near(c.values(), reference(s, av, bv, biasv, cv), tolerance().matmul, "C");
      EXPECT_NE(product.kernel, "");
    }
}

/// Z and C from a fused product with epilogue, and from a product and a GELU: within one rounding.
TEST_P(MatmulTest, DoesGeluAndItsGradient) {
  for (const auto& [m, n, k] :
       std::vector<std::array<std::int64_t, 3>>{{64, 128, 32}, {33, 7, 20}, {1, 8, 8}})
    for (const bool bias : {false, true}) {
      auto s = shape(m, n, k);
      s.b_transposed = true;
      s.bias = bias;
      const auto a = tensor(dtype(), normals(1, m * k, 0.3)),
                 b = tensor(dtype(), normals(2, n * k, 0.3)),
                 added = tensor(dtype(), normals(3, bias ? n : 0));
      auto plain = tensor(dtype(), m * n), expected = tensor(dtype(), m * n);
      Matmul(device(), s)({.a = a.view(), .b = b.view(), .bias = added.view(), .c = plain.view()},
                          stream());
      ops::run(ops::ActivationForward{.y = expected.view(), .x = plain.view()}, stream());
      s.epilogue = ops::Epilogue::gelu;
      auto z = tensor(dtype(), m * n), c = tensor(dtype(), m * n);
      Matmul(device(), s)(
          {.a = a.view(), .b = b.view(), .bias = added.view(), .z = z.view(), .c = c.view()},
          stream());
      expect_near(z.values(), plain.values(), tolerance().matmul, "Z");
      expect_near(c.values(), expected.values(), tolerance().matmul + tolerance().elementwise, "C");
      if (bias)
        continue;
      const auto at = tensor(dtype(), normals(4, m * n));
      ops::run(ops::ActivationBackward{.dx = expected.view(), .dy = plain.view(), .x = at.view()},
               stream());
      s.epilogue = ops::Epilogue::gelu_backward;
      Matmul(device(), s)({.a = a.view(), .b = b.view(), .z = at.view(), .c = c.view()}, stream());
      expect_near(c.values(), expected.values(), tolerance().matmul + tolerance().elementwise,
                  "gradient");
    }
}

TEST_P(MatmulTest, HasItsEpilogueInsideWhereOptionsAndLibraryAllowIt) {
  for (const auto epilogue :
       {ops::Epilogue::none, ops::Epilogue::gelu, ops::Epilogue::gelu_backward})
    for (const bool forward : {false, true})
      for (const bool backward : {false, true})
        for (const std::int64_t n : {16, 15}) {  // cuBLASLt requires multiples of 8
          auto s = shape(8, n, 8);
          s.epilogue = epilogue;
          const bool wanted = (epilogue == ops::Epilogue::gelu && forward) ||
                              (epilogue == ops::Epilogue::gelu_backward && backward);
          const Matmul product(device(), s,
                               {.fused_gelu = forward, .fused_gelu_backward = backward});
          EXPECT_EQ(product.fuses_epilogue(), wanted && n == 16 && dtype() == DType::bf16 &&
                                                  device().kind() == device::Kind::cuda);
        }
}

/// The gradients of a weight and its bias: in one product if the device can, and in two.
TEST_P(MatmulTest, SumsTheRowsOfA) {
  for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
           {48, 32, 70}, {7, 5, 3}, {16, 8, 1500}, {96, 160, 64}, {64, 40, 3200}})
    for (const bool fused : {false, true})
      for (const bool timed : {false, true}) {
        SCOPED_TRACE(fmt::format("{} x {} x {}, fused {}, timed {}", m, n, k, fused, timed));
        auto s = shape(m, n, k);
        s.a_transposed = s.accumulate = s.row_sums = true;
        s.c = DType::f32;
        const auto av = rounded_to(s.a, normals(1, m * k)), bv = rounded_to(s.b, normals(2, k * n)),
                   cv = rounded_to(s.c, normals(4, m * n)), sumsv = normals(5, m);
        const auto a = tensor(s.a, av), b = tensor(s.b, bv), c = tensor(s.c, cv),
                   sums = tensor(DType::f32, sumsv);
        const Matmul product(device(), s, {.timed = timed, .fused_row_sums = fused});
        const bool can = device().kind() == device::Kind::cuda
                             ? fused
                             : ops::cpu::amx::multiplies(s) && m % 32 == 0 && k % 32 == 0;
        EXPECT_EQ(product.sums_rows(), can && dtype() == DType::bf16);
        product({.a = a.view(), .b = b.view(), .c = c.view(), .row_sums = sums.view()}, stream());
        Values expected = rounded_to(DType::f32, sumsv);
        for (std::int64_t row = 0; row < k; ++row)
          for (std::int64_t i = 0; i < m; ++i)
            expected[static_cast<std::size_t>(i)] += av[static_cast<std::size_t>(row * m + i)];
        expect_near(c.values(), reference(s, av, bv, {}, cv), tolerance().matmul, "C");
        expect_near(sums.values(), expected, 2e-6, "sums");
      }
}

TEST_P(MatmulTest, CountsTheFlopOfBlocks) {
  const Matmul product(device(), shape(8, 8, 8));
  const double one = product.run_blocks(1);
  EXPECT_EQ(one > 0, device().kind() == device::Kind::cpu);
  EXPECT_EQ(product.run_blocks(3), 3 * one);
}

TEST_P(MatmulTest, FollowsItsOptions) {
  const ops::ProductOptions options{
      .timed = true, .fused_gelu = false, .fused_gelu_backward = false, .blocks = 8};
  auto s = shape(96, 64, 80);
  s.c = DType::f32;
  s.accumulate = true;
  check(s, options);  // the sum would show a trial
  s = shape(96, 64, 80);
  s.bias = true;
  check(s, options);
  s.bias = false;
  s.epilogue = ops::Epilogue::gelu;
  const auto av = rounded_to(dtype(), normals(1, s.m * s.k)),
             bv = rounded_to(dtype(), normals(2, s.k * s.n));
  const auto a = tensor(dtype(), av), b = tensor(dtype(), bv);
  auto z = tensor(dtype(), s.m * s.n), c = tensor(dtype(), s.m * s.n),
       expected = tensor(dtype(), s.m * s.n);
  Matmul(device(), s, options)({.a = a.view(), .b = b.view(), .z = z.view(), .c = c.view()},
                               stream());
  ops::run(ops::ActivationForward{.y = expected.view(), .x = z.view()}, stream());
  EXPECT_EQ(c.bytes(), expected.bytes());
  // Two products, of which timing could choose one with another order of additions.
  auto untimed = options;
  untimed.timed = false;
  s.epilogue = ops::Epilogue::none;
  Matmul(device(), s, untimed)({.a = a.view(), .b = b.view(), .c = expected.view()}, stream());
  ops::run(ops::ActivationBackward{.dx = expected.view(), .dy = expected.view(), .x = z.view()},
           stream());
  s.epilogue = ops::Epilogue::gelu_backward;
  Matmul(device(), s, untimed)({.a = a.view(), .b = b.view(), .z = z.view(), .c = c.view()},
                               stream());
  EXPECT_EQ(c.bytes(), expected.bytes());
}

TEST_P(MatmulTest, RejectsWrongViews) {
  auto s = shape(2, 3, 4);
  const auto a = tensor(dtype(), 8), b = tensor(dtype(), 12), bias = tensor(dtype(), 3);
  const auto c = tensor(dtype(), 6), small = tensor(dtype(), 5);
  const auto integers = tensor(DType::i32, 6);
  const Matmul matmul(device(), s);
  EXPECT_THROW(matmul({.a = a.view(), .b = b.view(), .c = small.view()}, stream()), ContractError);
  EXPECT_THROW(matmul({.a = b.view(), .b = b.view(), .c = c.view()}, stream()), ContractError);
  EXPECT_THROW(matmul({.a = a.view(), .b = a.view(), .c = c.view()}, stream()), ContractError);
  EXPECT_THROW(matmul({.a = a.view(), .b = b.view(), .c = integers.view()}, stream()),
               ContractError);
  EXPECT_THROW(matmul({.a = a.view(), .b = b.view(), .bias = bias.view(), .c = c.view()}, stream()),
               ContractError);
  s.bias = true;
  const Matmul biased(device(), s);
  EXPECT_THROW(biased({.a = a.view(), .b = b.view(), .c = c.view()}, stream()), ContractError);
  s.m = 0;
  EXPECT_THROW(Matmul(device(), s), ContractError);
  s = shape(2, 3, 4);
  s.epilogue = ops::Epilogue::gelu;
  const Matmul gelu(device(), s);
  EXPECT_THROW(gelu({.a = a.view(), .b = b.view(), .c = c.view()}, stream()), ContractError);
  EXPECT_THROW(gelu({.a = a.view(), .b = b.view(), .z = small.view(), .c = c.view()}, stream()),
               ContractError);
  EXPECT_THROW(matmul({.a = a.view(), .b = b.view(), .z = c.view(), .c = c.view()}, stream()),
               ContractError);
}

TEST_P(MatmulTest, RejectsDtypesThatTheLibraryCannotMultiply) {
  auto s = shape(2, 2, 2);
  s.a = DType::f32;
  s.b = DType::bf16;
  EXPECT_THROW(Matmul(device(), s), DeviceError);
}

TRIREME_ON_BACKENDS(MatmulTest);

TEST(MatrixLibrary, HasAVersion) {
  EXPECT_THAT(ops::onednn_version(),
              testing::MatchesRegex(ops::library_multiplies(DType::f32) ? "[0-9]+\\.[0-9]+\\.[0-9]+"
                                                                        : "not in this build"));
}

}  // namespace
}  // namespace trireme::test
