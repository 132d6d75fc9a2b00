// SPDX-License-Identifier: Apache-2.0
#include "comm/control/agreement.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/control/together.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Owner = Fact::Owner;

TEST(Agreement, PassesWhenRanksAgree) {
  const auto world = make_mpi_world();
  EXPECT_NO_THROW(expect_agreement(*world, {}));
  EXPECT_NO_THROW(
      expect_agreement(*world, {{"run.seed", "1", Owner::user}, {"build", "", Owner::machine}}));
}

TEST(Agreement, ReportsWhichValuesDiffer) {
  const auto world = make_mpi_world();
  const bool alone = world->size() == 1, last = world->rank() == world->size() - 1;
  // Values of both signs if read as signed numbers, and adjacent values.
  const std::uint64_t values[] = {0, last ? 1U : 2U, ~std::uint64_t{0},
                                  std::uint64_t{1} << (last ? 63U : 62U), 7};
  EXPECT_EQ(differing(*world, values),
            alone ? std::vector<std::size_t>() : (std::vector<std::size_t>{1, 3}));
}

TEST(Agreement, NamesEveryFactThatDiffersWithItsRanks) {
  const auto world = make_mpi_world();
  const bool last = world->rank() == world->size() - 1;
  if (world->size() < 3)
    return;
  try {
    expect_agreement(*world, {{"run.seed", "1337", Owner::user},
                              {"optimizer.learning_rate", last ? "2e-3" : "1e-3", Owner::user},
                              {"git_sha1", last ? "b" : "a", Owner::machine}});
    FAIL() << "no error on rank " << world->rank();
  } catch (const UserError& error) {
    const std::string others = "0-" + std::to_string(world->size() - 2);
    ASSERT_EQ(error.findings().size(), 2U);
    EXPECT_EQ(error.findings()[0].subject, "optimizer.learning_rate");
    EXPECT_EQ(error.findings()[0].text, "differs between ranks: 1e-3 on ranks " + others +
                                            ", 2e-3 on rank " + std::to_string(world->size() - 1));
    EXPECT_THAT(error.what(), AllOf(HasSubstr("git_sha1"), Not(HasSubstr("run.seed"))));
  }
}

TEST(Agreement, ReportsAnotherBuildAsAnErrorOfTheEnvironmentOnRankZero) {
  const auto world = make_mpi_world();
  if (world->size() == 1)
    return;
  const std::string mine = world->rank() == 0 ? "1.0" : "1.1";
  try {
    expect_agreement(*world, {{"run.seed", "1", Owner::user}, {"version", mine, Owner::machine}});
    FAIL() << "no error on rank " << world->rank();
  } catch (const EnvironmentError& error) {
    EXPECT_TRUE(error.known_to_all());
    EXPECT_EQ(dynamic_cast<const FailedElsewhere*>(&error) == nullptr, world->rank() == 0);
    EXPECT_THAT(error.what(), HasSubstr("version: 1.0 on rank 0, 1.1 on rank"));
  }
}

TEST(Agreement, TreatsAMissingFactAsADifference) {
  const auto world = make_mpi_world();
  if (world->size() == 1)
    return;
  std::vector<Fact> facts{{"a", "1", Owner::user}};
  if (world->rank() == 1)
    facts.push_back({"b", "2", Owner::user});
  try {
    expect_agreement(*world, facts);
    FAIL() << "no error on rank " << world->rank();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("b: "), HasSubstr("nothing on rank"), HasSubstr("2 on rank 1")));
  }
}

}  // namespace
}  // namespace trireme::comm
