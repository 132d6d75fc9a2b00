// SPDX-License-Identifier: Apache-2.0
#include "reduce/replicas.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/control/together.hpp"
#include "reduce/steps.hpp"
#include "reduce/thread_ranks.hpp"

namespace trireme::reduce {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using trireme::testing::run_ranks;
using trireme::testing::Setting;
using trireme::testing::settings_of_every_switch;
using trireme::testing::Steps;
using trireme::testing::table;
using trireme::testing::ThreadRank;

/// Trains two steps on `ranks` ranks, calls `spoil` with each rank's engine, and returns the error
/// message of each rank's check, or "".
template <class Spoil>
std::vector<std::string> said(int ranks, const Setting& setting, const Spoil& spoil) {
  std::vector<std::string> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](ThreadRank& rank) {
    const layout::Plan plan(table(setting.tied), {ranks, setting.bucket_elements, setting.padding});
    Engine engine(plan, setting.dtype, setting.config(), rank.communicator, *rank.device,
                  *rank.compute);
    Steps training(engine, *rank.device, *rank.compute);
    training.initialize();
    Replicas replicas(engine, rank.world, *rank.device, *rank.compute);
    for (int step = 0; step < 2; ++step) training.run(step);
    replicas.check(2);
    spoil(rank.world.rank(), engine);
    try {
      replicas.check(3);
    } catch (const EnvironmentError& error) {
      all[static_cast<std::size_t>(rank.world.rank())] = error.what();
    }
  });
  return all;
}

void flip(Engine& engine, ParameterIndex parameter, std::int64_t element) {
  engine.parameter(parameter).data[static_cast<std::size_t>(element) * 4] ^= std::byte{1};
}

TEST(Replicas, PassWhenTheyAreEqualUnderEverySwitch) {
  for (const Setting& setting : settings_of_every_switch())
    EXPECT_THAT(said(3, setting, [](int, Engine&) {}), Each(IsEmpty())) << setting.text();
}

TEST(Replicas, DifferenceOfOneBitIsReportedWithBucketParameterAndRanks) {
  const auto all = said(4, {}, [](int rank, Engine& engine) {
    if (rank == 2)
      flip(engine, ParameterIndex{3}, 799);
  });
  EXPECT_THAT(all[0], HasSubstr("hold the same parameters on all ranks after step 3 (1 of 3"));
  EXPECT_THAT(all,
              Each(AllOf(HasSubstr("c in bucket 0: hash "), HasSubstr("on ranks 0-1,3, hash"),
                         HasSubstr("on rank 2"), Not(HasSubstr("; b in")), Not(HasSubstr("wte")))));
}

TEST(Replicas, CheckOnOneRankComparesNothing) {
  EXPECT_THAT(said(1, {}, [](int, Engine& engine) { flip(engine, ParameterIndex{0}, 0); }),
              Each(IsEmpty()));
}

}  // namespace
}  // namespace trireme::reduce
