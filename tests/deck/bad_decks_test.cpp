// SPDX-License-Identifier: Apache-2.0
// Each deck of bad_decks.txt gets exactly the findings written below it.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deck/bad_deck.hpp"

namespace trireme::deck {
namespace {

class BadDecks : public testing::TestWithParam<BadDeck> {};

TEST_P(BadDecks, GetTheirFindings) {
  const BadDeck& bad = GetParam();
  ASSERT_FALSE(bad.expected.empty()) << "the case expects nothing";
  EXPECT_THAT(findings_of(bad.bare ? bad.deck : completed(bad.deck), bad.overrides, bad.ranks),
              testing::ElementsAreArray(bad.expected));
}

std::string test_name(const testing::TestParamInfo<BadDeck>& info) {
  std::string name = info.param.name;
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return std::to_string(info.index) + "_" + name;
}

INSTANTIATE_TEST_SUITE_P(Table,
                         BadDecks,
                         testing::ValuesIn(load_bad_decks(TRIREME_BAD_DECKS)),
                         test_name);

TEST(BadDeckTable, IsWhole) {
  const std::vector<BadDeck> cases = load_bad_decks(TRIREME_BAD_DECKS);
  EXPECT_GE(cases.size(), 160U);
  // The sections that complete the cases are valid themselves.
  EXPECT_THAT(findings_of(completed(""), {}, 1), testing::IsEmpty());
}

}  // namespace
}  // namespace trireme::deck
