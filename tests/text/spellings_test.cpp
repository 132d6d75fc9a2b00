// SPDX-License-Identifier: Apache-2.0
#include "text/spellings.hpp"

#include <gtest/gtest.h>

namespace trireme::text {
namespace {

TEST(Spellings, TheFirstAndLongestIsFound) {
  const Spellings one({"<|a|>", "<|a|>b", "<"});
  EXPECT_EQ(one.find("x<|a|>b").number, 1U);
  EXPECT_EQ(one.find("x<|a|>c").at, 1U);
  EXPECT_EQ(one.find("x<|a|>c").number, 0U);
  EXPECT_EQ(one.find("x<|a").number, 2U);
  EXPECT_EQ(one.find("<", 0).number, 2U);
  EXPECT_EQ(one.find("<<", 1).at, 1U);
  EXPECT_EQ(one.find("x", 0).at, std::string_view::npos);
  EXPECT_EQ(Spellings().find("x").at, std::string_view::npos);
  const Spellings several({"ab", "\xff", "b"});
  EXPECT_EQ(several.find("xx\xff").at, 2U);
  EXPECT_EQ(several.find("acab").at, 2U);
  EXPECT_EQ(several.find("acab").number, 0U);
}

TEST(Spellings, APlaceInsideOrAtTheEndIsCovered) {
  const Spellings one({"abc"});
  const std::string_view text = "xabcx";
  EXPECT_FALSE(one.covers(text, 1));
  EXPECT_TRUE(one.covers(text, 2));
  EXPECT_TRUE(one.covers(text, 4));
  EXPECT_FALSE(one.covers(text, 5));
  EXPECT_FALSE(Spellings().covers(text, 2));
}

}  // namespace
}  // namespace trireme::text
