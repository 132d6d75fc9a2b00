// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/accumulate.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "comm/payload.hpp"

namespace trireme::comm {
namespace {

using testing::element;
using testing::fill;
using testing::ordered_sum;
using testing::paired_sum;

class Sums : public ::testing::TestWithParam<DType> {};

using Expected = float (*)(int num_ranks, std::int64_t i, DType dtype, int round);

void expect_bits(Summation sum, Expected expected_sum, DType dtype) {
  for (const int num_sources : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 32})
    for (const std::int64_t elements : {1, 3, 16, 17, 1023, 1024, 1025, 5003}) {
      std::vector<std::vector<std::byte>> data;
      std::vector<const std::byte*> sources;
      for (int r = 0; r < num_sources; ++r) {
        data.emplace_back(static_cast<std::size_t>(elements) * size_bytes(dtype));
        fill({data.back().data(), elements, dtype}, r);
      }
      for (const auto& bytes : data) sources.push_back(bytes.data());
      std::vector<std::byte> apart(data[0].size());
      sum(apart.data(), sources, elements, dtype);
      // In place: the result overwrites the last source.
      sum(data.back().data(), sources, elements, dtype);
      for (std::int64_t i = 0; i < elements; ++i) {
        const float expected = expected_sum(num_sources, i, dtype, 0);
        ASSERT_EQ(element(apart.data(), i, dtype), expected)
            << num_sources << " sources, element " << i << " of " << elements;
        ASSERT_EQ(element(data.back().data(), i, dtype), expected) << "in place, element " << i;
      }
    }
}

TEST_P(Sums, InOrderHaveTheBitsOfAPlainLoop) {
  expect_bits(sum_in_order, ordered_sum, GetParam());
  expect_bits(summation_of(Reduction::ordered), ordered_sum, GetParam());
}

TEST_P(Sums, InPairsHaveTheBitsOfTheTree) {
  expect_bits(sum_in_pairs, paired_sum, GetParam());
  expect_bits(summation_of(Reduction::tree), paired_sum, GetParam());
}

// Why results do not depend on the number of ranks: combining subtrees of equal size gives the
// whole tree.
TEST(SumInPairs, OfSubtreesEqualsTheWholeTree) {
  constexpr std::int64_t elements = 1500;
  constexpr std::size_t leaves = 16;
  std::vector<std::vector<float>> data(leaves, std::vector<float>(elements));
  for (std::size_t r = 0; r < leaves; ++r)
    fill({reinterpret_cast<std::byte*>(data[r].data()), elements, DType::f32}, static_cast<int>(r));
  const auto sum_of = [&](const std::vector<std::vector<float>>& terms) {
    std::vector<const std::byte*> sources;
    for (const auto& term : terms)
      sources.push_back(reinterpret_cast<const std::byte*>(term.data()));
    std::vector<float> sum(elements);
    sum_in_pairs(reinterpret_cast<std::byte*>(sum.data()), sources, elements, DType::f32);
    return sum;
  };
  const auto whole = sum_of(data);
  for (const std::size_t ranks : {1U, 2U, 4U, 8U}) {
    std::vector<std::vector<float>> parts;
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto begin = data.begin() + static_cast<std::ptrdiff_t>(r * leaves / ranks);
      parts.push_back(sum_of({begin, begin + static_cast<std::ptrdiff_t>(leaves / ranks)}));
    }
    EXPECT_EQ(sum_of(parts), whole) << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(,
                         Sums,
                         ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& tested) { return std::string(name(tested.param)); });

TEST(SumOfThree, DependsOnTheOrder) {
  // If the 1 is added first, rounding loses it: (1e8 + 1) - 1e8 = 0, but (1e8 - 1e8) + 1 = 1.
  const float big = 1e8F, one = 1, minus = -1e8F;
  const auto bytes = [](const float& value) { return reinterpret_cast<const std::byte*>(&value); };
  float out = -1;
  const std::byte* first[] = {bytes(big), bytes(one), bytes(minus)};
  sum_in_order(reinterpret_cast<std::byte*>(&out), first, 1, DType::f32);
  EXPECT_EQ(out, 0.0F);
  const std::byte* second[] = {bytes(big), bytes(minus), bytes(one)};
  sum_in_order(reinterpret_cast<std::byte*>(&out), second, 1, DType::f32);
  EXPECT_EQ(out, 1.0F);
}

TEST(SumsOfIntegers, AreExact) {
  // Neither fp32 nor fp64 represents these sums exactly.
  const std::int64_t large = (std::int64_t{1} << 60U) + 1;
  for (const Summation sum : {sum_in_order, sum_in_pairs})
    for (const int num_sources : {1, 2, 3, 4, 7}) {
      std::vector<std::vector<std::int64_t>> data;
      std::vector<const std::byte*> sources;
      for (int r = 0; r < num_sources; ++r) data.push_back({large, -large, r, -5 * r});
      for (const auto& terms : data)
        sources.push_back(reinterpret_cast<const std::byte*>(&terms[0]));
      sum(reinterpret_cast<std::byte*>(data.back().data()), sources, 4, DType::i64);
      const std::int64_t ranks = num_sources * (num_sources - 1) / 2;
      EXPECT_EQ(data.back(), (std::vector<std::int64_t>{num_sources * large, -num_sources * large,
                                                        ranks, -5 * ranks}));
    }
}

TEST(CopyPastCaches, CopiesEveryByteAndNoMore) {
  for (const std::size_t bytes : {0UL, 1UL, 63UL, 262'143UL, 262'144UL, 300'001UL})
    for (const std::size_t shift : {0UL, 4UL}) {  // streaming stores need whole cache lines
      std::vector<std::byte> from(bytes), to(bytes + shift + 192, std::byte{0x55});
      for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 31 % 251);
      const auto misalignment = reinterpret_cast<std::uintptr_t>(to.data()) % 64;
      const std::size_t start = (64 - misalignment) % 64 + shift;
      copy_past_caches(to.data() + start, from.data(), bytes);
      for (std::size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= start && i < start + bytes;
        ASSERT_EQ(to[i], inside ? from[i - start] : std::byte{0x55}) << i << " of " << bytes;
      }
    }
}

TEST(AddTo, AddsInPlace) {
  std::vector<float> to(1029), from(1029);
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<float>(i);
    from[i] = 0.5F;
  }
  add_to(to.data(), from.data(), static_cast<std::int64_t>(to.size()));
  for (std::size_t i = 0; i < to.size(); ++i) ASSERT_EQ(to[i], static_cast<float>(i) + 0.5F);
}

}  // namespace
}  // namespace trireme::comm
