// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "base/text.hpp"

namespace trireme {
namespace {

TEST(Terminal, ShowsTextAndSpellsTheRest) {
  EXPECT_EQ(for_terminal("a\tb\n\xC3\xA9 \xE2\x82\xAC"), "a\tb\n\xC3\xA9 \xE2\x82\xAC");
  EXPECT_EQ(for_terminal("\x1b[31m\x7f"), "\\x1b[31m\\x7f");
  EXPECT_EQ(for_terminal("\xC2\x9B"
                         "2J"),
            "\\xc2\\x9b2J");
  EXPECT_EQ(for_terminal("\xE2\x82"), "\\xe2\\x82");
  EXPECT_EQ(for_terminal(std::string_view("\0", 1)), "\\x00");
}

TEST(Streamed, WhateverThePiecesTheTextIsTheSameAndNoCharacterIsCut) {
  const std::string text =
      "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\x8A z\xC3\xC3\xA9\x80\xF0\x9F\xE2\x82";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    Streamed stream;
    std::string shown;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const std::string more = stream.add(text.substr(at, piece));
      EXPECT_EQ(for_terminal(more), more) << "in pieces of " << piece;  // only whole characters
      shown += more;
    }
    EXPECT_EQ(shown + stream.finish(), for_terminal(text)) << "in pieces of " << piece;
  }
}

TEST(Streamed, HoldsBackNoMoreThanACharacter) {
  Streamed stream;
  EXPECT_EQ(stream.add("ab"), "ab");
  EXPECT_EQ(stream.add("\xE2\x82"), "");
  EXPECT_EQ(stream.add("\xAC"), "\xE2\x82\xAC");
  EXPECT_EQ(stream.add("\xF0\x9F\x8C"), "");
  EXPECT_EQ(stream.add("x"), "\\xf0\\x9f\\x8cx");
  EXPECT_EQ(stream.add("\x80"), "\\x80");
  EXPECT_EQ(stream.add("\xC3"), "");
  EXPECT_EQ(stream.finish(), "\\xc3");
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace trireme
