// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/order_free_sum.hpp"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <limits>
#include <numeric>
#include <random>

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

/// 113 bits: __float128, or long double on aarch64, where g++ has no __float128.
#if defined(__x86_64__)
using Quad = __float128;
#else
using Quad = long double;
#endif

using ops::OrderFreeSum;

constexpr double infinity = std::numeric_limits<double>::infinity();

double sum_of(const Values& terms) {
  OrderFreeSum sum;
  for (const double term : terms) sum.add(term);
  return sum.value();
}

/// Finite doubles with random bits; `span` limits the exponents to 2^-span … 2^span.
Values wild_terms(unsigned seed, std::size_t count, int span) {
  std::mt19937_64 random(seed);
  Values terms;
  for (std::size_t i = 0; i < count; ++i) {
    const double mantissa = std::ldexp(static_cast<double>(random() >> 11U), -53) - 0.5;
    terms.push_back(
        std::ldexp(mantissa, static_cast<int>(random() % static_cast<unsigned>(2 * span)) - span));
  }
  return terms;
}

TEST(OrderFreeSum, AddsByHand) {
  EXPECT_EQ(sum_of({}), 0.0);
  EXPECT_EQ(sum_of({1, 2, 3.5}), 6.5);
  EXPECT_EQ(sum_of({1, -1}), 0.0);
  EXPECT_EQ(sum_of({-3, 1}), -2.0);
  EXPECT_EQ(sum_of({1e308, 1, -1e308}), 1.0);
  EXPECT_EQ(sum_of({1, 0x1p-53}), 1.0) << "half way goes to even";
  EXPECT_EQ(sum_of({1 + 0x1p-52, 0x1p-53}), 1 + 0x1p-51) << "half way goes to even";
  EXPECT_EQ(sum_of({1, 0x1p-53, 0x1p-1074}), 1 + 0x1p-52)
      << "a sticky bit far below breaks the tie";
  EXPECT_EQ(sum_of({1, 0x1p-53, -0x1p-1074}), 1.0);
}

TEST(OrderFreeSum, RoundsOneTermToItself) {
  const double smallest = std::numeric_limits<double>::denorm_min(),
               least = std::numeric_limits<double>::min(),
               most = std::numeric_limits<double>::max();
  for (const double term :
       {smallest, 3 * smallest, least, least - smallest, most, 0x1.fffffffffffffp0, 1e-310, 5e300})
    for (const double sign : {1.0, -1.0}) EXPECT_EQ(sum_of({sign * term}), sign * term);
  for (const double term : wild_terms(1, 2000, 1000)) ASSERT_EQ(sum_of({term}), term);
}

TEST(OrderFreeSum, OverflowsToInfinity) {
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(sum_of({most, most}), infinity);
  EXPECT_EQ(sum_of({-most, -most}), -infinity);
  EXPECT_EQ(sum_of({most, most, -most}), most) << "only the sum counts, not the way to it";
}

TEST(OrderFreeSum, CountsNanAndInfinities) {
  EXPECT_EQ(sum_of({infinity, 1, -1e300}), infinity);
  EXPECT_EQ(sum_of({-infinity, 1}), -infinity);
  EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
  EXPECT_TRUE(std::isnan(sum_of({1, std::nan("")})));
}

TEST(OrderFreeSum, AgreesWithQuadPrecision) {
  // 53 bits, 30 exponents and 1000 terms fit into 113 bits: Quad is exact here.
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto terms = wild_terms(seed, 1000, 15);
    Quad exact = 0;
    for (const double term : terms) exact += static_cast<Quad>(term);
    ASSERT_EQ(sum_of(terms), static_cast<double>(exact)) << "seed " << seed;
  }
}

TEST(OrderFreeSum, AgreesWithARoundedPairOfDoubles) {
  // Two terms: the hardware's sum is the exact sum, rounded once.
  const auto terms = wild_terms(9, 4000, 40);
  for (std::size_t i = 0; i + 1 < terms.size(); ++i)
    ASSERT_EQ(sum_of({terms[i], terms[i + 1]}), terms[i] + terms[i + 1]);
}

TEST(OrderFreeSum, DoesNotDependOnOrderOrPartition) {
  auto terms = wild_terms(2, 3000, 1000);
  const auto expected = std::bit_cast<std::uint64_t>(sum_of(terms));
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::shuffle(terms.begin(), terms.end(), random);
    OrderFreeSum total;
    for (std::size_t begin = 0; begin < terms.size();) {
      const auto end = std::min(terms.size(), begin + 1 + random() % 500);
      OrderFreeSum part;
      for (; begin < end; ++begin) part.add(terms[begin]);
      if (random() % 2 == 0)
        part.normalize();
      total.merge(part);
    }
    ASSERT_EQ(std::bit_cast<std::uint64_t>(total.value()), expected);
  }
}

TEST(OrderFreeSum, MergesAsIntegersLikeRanksDo) {
  const auto terms = wild_terms(4, 1000, 300);
  std::vector<OrderFreeSum> ranks(7);
  for (std::size_t i = 0; i < terms.size(); ++i) ranks[i % ranks.size()].add(terms[i]);
  OrderFreeSum total;
  for (auto& rank : ranks) {
    rank.normalize();
    for (std::size_t w = 0; w < OrderFreeSum::num_words; ++w) total.words()[w] += rank.words()[w];
  }
  EXPECT_EQ(total.value(), sum_of(terms));
}

class OrderFreeSumTest : public OpsTest {
 protected:
  OrderFreeSum& fetched(ops::StreamSum& sum) {
    sum.fetch(stream());
    stream().synchronize();
    return sum.fetched();
  }

  /// add_squares and add_values against one scalar addition per value, to the bit.
  void check(const Values& values) {
    const auto on_device = tensor(DType::f32, values);
    OrderFreeSum expected_squares, expected_plain;
    ops::StreamSum squares_there(device()), plain_there(device());
    squares_there.add_squares(on_device.view(), stream());
    plain_there.add_values(on_device.view(), stream());
    OrderFreeSum& squares = fetched(squares_there);
    OrderFreeSum& plain = fetched(plain_there);
    for (const double v : on_device.values()) {
      expected_squares.add(v * v);
      expected_plain.add(v);
    }
    EXPECT_EQ(std::bit_cast<std::uint64_t>(squares.value()),
              std::bit_cast<std::uint64_t>(expected_squares.value()));
    EXPECT_EQ(std::bit_cast<std::uint64_t>(plain.value()),
              std::bit_cast<std::uint64_t>(expected_plain.value()));
    squares.normalize();
    expected_squares.normalize();
    EXPECT_TRUE(std::equal(squares.words().begin(), squares.words().end(),
                           expected_squares.words().begin()))
        << "the exact sums differ below the rounding";
    plain.normalize();
    expected_plain.normalize();
    EXPECT_TRUE(
        std::equal(plain.words().begin(), plain.words().end(), expected_plain.words().begin()));
  }
};

TEST_P(OrderFreeSumTest, IsExactAtAwkwardSizes) {
  for (const std::int64_t n : {0, 1, 2, 15, 17, 1023, 1024, 1025, 40961})
    check(normals(1, n, 1e-3));
}

TEST_P(OrderFreeSumTest, IsExactForEveryExponent) {
  for (const int span : {1, 20, 60, 120}) check(wild_terms(5, 5000, span));
  Values extremes;
  for (int e = -149; e <= 127; ++e) {
    extremes.push_back(std::ldexp(1.0, e));
    extremes.push_back(-std::ldexp(static_cast<double>(0x1.fffffeP0F), std::min(e, 127)));
  }
  extremes.push_back(0);
  extremes.push_back(-0.0);
  check(extremes);
  check({std::ldexp(1.0, -149)});
  check({static_cast<double>(std::numeric_limits<float>::max()), std::ldexp(1.0, -149)});
  check(Values(3000, static_cast<double>(std::numeric_limits<float>::max())));
  check(Values(3000, 0.0));
}

TEST_P(OrderFreeSumTest, KeepsNanAndInfinity) {
  Values values = normals(1, 5000);
  values[4097] = infinity;
  const auto squares_of = [&] {
    const auto on_device = tensor(DType::f32, values);
    ops::StreamSum sum(device());
    sum.add_squares(on_device.view(), stream());
    return fetched(sum).value();
  };
  EXPECT_EQ(squares_of(), infinity);
  values[4097] = -infinity;
  EXPECT_EQ(squares_of(), infinity);
  values[3] = std::nan("");
  EXPECT_TRUE(std::isnan(squares_of()));
}

TEST_P(OrderFreeSumTest, DoesNotDependOnThreadsOrCuts) {
  const std::int64_t n = 60013;
  const auto values = tensor(DType::f32, wild_terms(6, static_cast<std::size_t>(n), 30));
  const auto run = [&](const std::vector<std::int64_t>& cuts) {
    ops::StreamSum sum(device());
    sum.add_squares(values.view(), stream());
    sum.clear(stream());  // clears the sum
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      sum.add_squares(values.view().slice(cuts[i], cuts[i + 1] - cuts[i]), stream());
    const double value = fetched(sum).value();
    std::vector<std::byte> bytes(sizeof(value));
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  };
  expect_same_on_threads([&] { return run({0, n}); });
  EXPECT_TRUE(run({0, n}) == run({0, 7, 1031, 20000, n}));
}

/// More views than a GPU processes in one launch, of all sizes at all offsets.
TEST_P(OrderFreeSumTest, AddsManyViewsAsOne) {
  std::vector<std::int64_t> begins{0};
  for (std::int64_t i = 0; i < 150; ++i)
    begins.push_back(begins.back() + std::vector<std::int64_t>{5, 64, 1, 4099, 0, 33,
                                                               4}[static_cast<std::size_t>(i % 7)]);
  const auto values =
      tensor(DType::f32, wild_terms(8, static_cast<std::size_t>(begins.back()), 30));
  std::vector<ConstView> parts;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i)
    parts.push_back(values.view().slice(begins[i], begins[i + 1] - begins[i]));
  ops::StreamSum one(device()), many(device());
  one.add_squares(values.view(), stream());
  many.add_squares(parts, stream());
  EXPECT_EQ(fetched(many).value(), fetched(one).value());
}

TEST_P(OrderFreeSumTest, AddsOtherSums) {
  const auto values = tensor(DType::f32, wild_terms(9, 5000, 30));
  ops::StreamSum one(device()), total(device());
  one.add_squares(values.view(), stream());
  for (const auto& [begin, end] : {std::pair(0, 1234), std::pair(1234, 5000)}) {
    ops::StreamSum part(device());
    part.add_squares(values.view().slice(begin, end - begin), stream());
    total.add(part, stream());
    stream().synchronize();
  }
  EXPECT_EQ(fetched(total).value(), fetched(one).value());
}

TEST_P(OrderFreeSumTest, ValuesAreTheHostsToTheBit) {
  // Sums stored by ranks, added as integers and evaluated on the device; some no stream can make.
  const double most = std::numeric_limits<double>::max();
  std::vector<Values> sums{
      {},     {0, -0.0},    {1, 2, 3.5}, {1, 0x1p-53, 0x1p-1074}, {-3, 1},  {1, 0x1p-53},
      {most}, {most, most}, {-infinity}, {infinity, -infinity},   {1e-310}, {5e-324, 1e-320}};
  for (unsigned seed = 0; seed < 20; ++seed) sums.push_back(wild_terms(seed, 300, 600));
  std::vector<std::int64_t> words;
  Values expected;
  for (const Values& terms : sums) {
    OrderFreeSum one, other;
    for (std::size_t i = 0; i < terms.size(); ++i) (i % 3 == 0 ? one : other).add(terms[i]);
    one.normalize();
    other.normalize();
    for (std::size_t w = 0; w < OrderFreeSum::num_words; ++w)
      words.push_back(one.words()[w] + other.words()[w]);
    one.merge(other);
    expected.push_back(one.value());
  }
  const auto count = static_cast<std::int64_t>(sums.size());
  const auto there = tensor(DType::i64, static_cast<std::int64_t>(words.size()));
  device().copy(there.view(), view_of(words.data(), there.view().elements), stream());
  const auto values = tensor(DType::f64, count);
  ops::values_of_words(values.view(), there.view(), stream());
  Values got(sums.size());
  device().copy(view_of(got.data(), count), values.view(), stream());
  stream().synchronize();
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(std::bit_cast<std::uint64_t>(got[i]) == std::bit_cast<std::uint64_t>(expected[i]) ||
                (std::isnan(got[i]) && std::isnan(expected[i])))
        << i << ": " << got[i] << ", not " << expected[i];
}

TEST_P(OrderFreeSumTest, StoresWhatWasAdded) {
  const auto terms = tensor(DType::f32, wild_terms(7, 5000, 30));
  ops::StreamSum sum(device());
  const auto words = tensor(DType::i64, ops::num_words);
  const auto value = tensor(DType::f64, 1);
  for (int round = 1; round <= 2; ++round) {  // stored values remain in the sum
    sum.add_squares(terms.view(), stream());
    sum.store(words.view(), stream());
    ops::values_of_words(value.view(), words.view(), stream());
    double got = 0;
    device().copy(view_of(&got, 1), value.view(), stream());
    stream().synchronize();
    OrderFreeSum expected;
    for (int r = 0; r < round; ++r)
      for (const double v : terms.values()) expected.add(v * v);
    EXPECT_EQ(got, expected.value());
  }
}

TRIREME_ON_BACKENDS(OrderFreeSumTest);

}  // namespace
}  // namespace trireme::test
