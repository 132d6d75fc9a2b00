// SPDX-License-Identifier: Apache-2.0
#include "tokens/rows.hpp"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::tokens {
namespace {

using ::testing::ElementsAre;

TEST(Rows, BeginWithDocumentsOrGoOnInThem) {
  RowStarts rows(4);
  // Documents of 3, 10, 2 and 6 tokens.
  for (const std::int64_t begin : {0, 3, 13, 15}) rows.document(begin);
  // 0 fills up to 4 (the second begins within); 13 goes on to 17; 15 lies within its row.
  EXPECT_THAT(rows.finish(21), ElementsAre(0, 13));
  RowStarts longer(4);
  for (const std::int64_t begin : {0, 10, 12}) longer.document(begin);
  EXPECT_THAT(longer.finish(30), ElementsAre(0, 4, 8, 12, 16, 20, 24));
}

}  // namespace
}  // namespace trireme::tokens
