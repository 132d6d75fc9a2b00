// SPDX-License-Identifier: Apache-2.0
#include "base/hash.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(HashBytes, GivesThePublishedValuesOfXxh64) {
  // Known answers of the reference implementation; the last is longer than one stripe of 32 bytes.
  EXPECT_EQ(hash_bytes(""), 0xEF46DB3751D8E999U);
  EXPECT_EQ(hash_bytes("a"), 0xD24EC4F1A98C6E5BU);
  EXPECT_EQ(hash_bytes("abc"), 0x44BC2CF5AD770999U);
  EXPECT_EQ(hash_bytes("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1U);
}

TEST(HashBytes, SeesEveryByteAndTheLength) {
  const std::string text(75, 'x');
  const auto whole = hash_bytes(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = 'y';
    EXPECT_NE(hash_bytes(changed), whole) << i;
    EXPECT_NE(hash_bytes(text.substr(0, i)), whole) << i;
  }
  EXPECT_NE(hash_bytes(text, 1), whole);
}

TEST(Mix64, GivesThePublishedSequenceOfSplitMix64) {
  // First outputs for seed 1234567, as listed with the reference implementation.
  const std::uint64_t expected[] = {6457827717110365317U, 3203168211198807973U,
                                    9817491932198370423U, 4593380528125082431U,
                                    16408922859458223821U};
  std::uint64_t state = 1234567;
  for (const std::uint64_t value : expected) EXPECT_EQ(mix64(state += golden64), value);
}

TEST(HashElements, IsTheSameHoweverTheTensorIsCut) {
  std::vector<float> values(1013);
  std::iota(values.begin(), values.end(), -3.25F);
  const ConstView all = view_of(values.data(), 1013);
  const auto whole = hash_elements(all, 0);
  for (const std::int64_t cut : {0, 1, 500, 1012, 1013})
    EXPECT_EQ(hash_elements(all.slice(cut, 1013 - cut), cut) + hash_elements(all.slice(0, cut), 0),
              whole);
}

TEST(HashElements, SeesASwapAShiftAndEveryBit) {
  std::vector<float> values(257, 1.5F);
  values[10] = 2.0F;
  const auto hash = [&] { return hash_elements(view_of(values.data(), 257), 0); };
  const auto whole = hash();
  std::swap(values[10], values[11]);
  EXPECT_NE(hash(), whole);
  std::swap(values[10], values[11]);
  EXPECT_EQ(hash(), whole);
  EXPECT_NE(hash_elements(view_of(values.data(), 257), 1), whole);
  for (unsigned bit = 0; bit < 32; ++bit) {
    const float kept = values[100];
    values[100] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(kept) ^ (1U << bit));
    EXPECT_NE(hash(), whole) << bit;
    values[100] = kept;
  }
}

TEST(HashElements, CoversEveryElementSize) {
  const std::vector<double> doubles = {1.0, -0.0};
  const std::vector<Bf16> halves = {Bf16(1.0F), Bf16(-2.0F)};
  const std::vector<std::uint8_t> bytes = {7, 0};
  EXPECT_EQ(hash_elements(view_of(doubles.data(), 2), 5),
            element_hash(5, 0x3FF0000000000000U) + element_hash(6, 0x8000000000000000U));
  EXPECT_EQ(hash_elements(view_of(halves.data(), 2), 0),
            element_hash(0, 0x3F80) + element_hash(1, 0xC000));
  EXPECT_EQ(hash_elements(view_of(bytes.data(), 2), 0), element_hash(0, 7) + element_hash(1, 0));
  EXPECT_EQ(hash_elements(ConstView{}, 0), 0U);
}

}  // namespace
}  // namespace trireme
