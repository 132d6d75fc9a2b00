// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(EditDistanceTest, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("ab", "ba"), 2U);
}

TEST(NearestTest, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> known{"learning_rate", "weight_decay", "beta1", "beta2"};
  EXPECT_EQ(nearest("learning_rte", known), "learning_rate");
  EXPECT_EQ(nearest("weigth_decay", known), "weight_decay");
  EXPECT_EQ(nearest("beta2", known), "beta2");
  EXPECT_EQ(nearest("momentum", known), std::nullopt);
  EXPECT_EQ(nearest("beta", {}), std::nullopt);
}

TEST(BytesTextTest, ThreeDigitsAndAUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1 KiB");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(1000.0 * 1024), "1000 KiB");
  EXPECT_EQ(bytes_text(1023.4 * 1024), "1023 KiB");
  EXPECT_EQ(bytes_text(1023.9 * 1024), "1 MiB");
  EXPECT_EQ(bytes_text(3.25 * 1024 * 1024 * 1024), "3.25 GiB");
  EXPECT_EQ(bytes_text(5000.0 * 1024 * 1024 * 1024 * 1024), "5000 TiB");
}

TEST(DurationTextTest, ChangesUnitWithoutRoundingInto60) {
  EXPECT_EQ(duration_text(0.85), "850 ms");
  EXPECT_EQ(duration_text(0.00123), "1.23 ms");
  EXPECT_EQ(duration_text(0.9999), "1.0 s");
  EXPECT_EQ(duration_text(12.34), "12.3 s");
  EXPECT_EQ(duration_text(59.94), "59.9 s");
  EXPECT_EQ(duration_text(59.96), "1 min 00 s");
  EXPECT_EQ(duration_text(245), "4 min 05 s");
  EXPECT_EQ(duration_text(3599.7), "1 h 00 min");
  EXPECT_EQ(duration_text(3 * 3600 + 12 * 60 + 59), "3 h 12 min");
  EXPECT_EQ(duration_text(3.6e303), "1e+300 h");
}

TEST(CountTextTest, AlwaysThreeDigitsAboveAThousand) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(950), "950");
  EXPECT_EQ(count_text(999.7), "1.00 k");
  EXPECT_EQ(count_text(12345), "12.3 k");
  EXPECT_EQ(count_text(999999), "1.00 M");
  EXPECT_EQ(count_text(1.24e6), "1.24 M");
  EXPECT_EQ(count_text(124.4e6), "124 M");
  EXPECT_EQ(count_text(3.1e9), "3.10 G");
}

}  // namespace
}  // namespace trireme
