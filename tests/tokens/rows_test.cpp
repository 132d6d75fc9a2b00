// SPDX-License-Identifier: Apache-2.0
#include "tokens/rows.hpp"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::tokens {
namespace {

using ::testing::ElementsAre;

TEST(Rows, BeginWithDocumentsOrGoOnInThem) {
  // Documents of 3, 10, 2 and 6 tokens.
  const std::vector<std::int64_t> documents{0, 3, 13, 15};
  // The row at 0 ends inside the second document; the row at 13 ends at 17 and contains 15.
  EXPECT_THAT(row_starts(documents, 4, 21), ElementsAre(0, 13));
  const std::vector<std::int64_t> longer{0, 10, 12};
  EXPECT_THAT(row_starts(longer, 4, 30), ElementsAre(0, 4, 8, 12, 16, 20, 24));
  EXPECT_THAT(row_starts({}, 4, 30), ElementsAre());
}

}  // namespace
}  // namespace trireme::tokens
