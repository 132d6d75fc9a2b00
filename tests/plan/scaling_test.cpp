// SPDX-License-Identifier: Apache-2.0
#include "plan/scaling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

using testing::HasSubstr, testing::Not;

TEST(Scaling, HasCopiesInMemoryWhereTheyAreMade) {
  Scaling scaling{.sequences = 8, .context = 16, .rows = {}};
  scaling.rows.resize(2);
  scaling.rows[0].checkpoint_s = 0.5;
  scaling.rows[1].checkpoint_s = 0.25;
  EXPECT_THAT(scaling_text(scaling), Not(HasSubstr("copy in")));
  EXPECT_TRUE(scaling_json(scaling)[1]["memory_copy_s"].is_null());
  scaling.rows[1].memory_copy_s = 0.0042;
  const std::string text = scaling_text(scaling);
  EXPECT_THAT(text, HasSubstr("  checkpoint     copy in\n"));
  EXPECT_THAT(text, HasSubstr("   500.00 ms           - \n"));
  EXPECT_THAT(text, HasSubstr("   250.00 ms     4.20 ms \n"));
  EXPECT_EQ(scaling_json(scaling)[1]["memory_copy_s"], 0.0042);
}

}  // namespace
}  // namespace trireme::plan
