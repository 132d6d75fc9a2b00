// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "text/characters.hpp"

namespace trireme::text {
namespace {

TEST(Nfc, ComposesAndOrdersMarks) {
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc("a\u0323\u0302"), "\u1ead");
  EXPECT_EQ(nfc("\u212b"), "\u00c5");              // a singleton
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");        // excluded from composition
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");  // Hangul
  EXPECT_EQ(nfc("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(nfc("\u0f71\u0f73"), "\u0f71\u0f71\u0f72");  // a starter that begins with a mark
  EXPECT_EQ(nfc("a\xff\u0301"), "a\xff\u0301");          // not UTF-8
}

TEST(Nfc, TheQuickCheckIsSureOnlyOfWhatIsNormalized) {
  EXPECT_TRUE(is_surely_nfc("plain \u00e9 \u4f60\ud55c \xff"));
  EXPECT_TRUE(is_surely_nfc(""));
  EXPECT_FALSE(is_surely_nfc("e\u0301"));
  EXPECT_FALSE(is_surely_nfc("\u212b"));
  EXPECT_FALSE(is_surely_nfc("\u1112\u1161"));
}

TEST(Nfc, CharactersThatMayJoinDoNotBeginAPart) {
  EXPECT_TRUE(begins_nfc('a'));
  EXPECT_FALSE(begins_nfc(0x301));
  EXPECT_FALSE(begins_nfc(0x1161));
  EXPECT_FALSE(begins_nfc(0x0F73));
}

}  // namespace
}  // namespace trireme::text
