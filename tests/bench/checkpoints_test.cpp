// SPDX-License-Identifier: Apache-2.0
#include "bench/checkpoints.hpp"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "comm/control/temporary_directory.hpp"

namespace trireme::bench {
namespace {

TEST(BenchCheckpoints, MeasuresOnAllRanksAndLeavesNothing) {
  const auto world = comm::make_mpi_world();
  if (world->size() > 2)
    GTEST_SKIP() << "as on two ranks, for ten seconds";
  const comm::TemporaryDirectory place(*world);
  plan::Machine cost;
  measure_checkpoints(*world, place.path(), {.model = {{"layers", "1"}}, .more = {}}, 0.01, cost);
  EXPECT_GT(cost.storage_latency_s + cost.storage_tensor_s, 0) << "every fsync takes some time";
  EXPECT_GT(cost.storage_bytes_per_s, 0);
  EXPECT_TRUE(std::isfinite(cost.storage_bytes_per_s));
  world->barrier();
  EXPECT_TRUE(std::filesystem::is_empty(place.path()));
  for (const double value :
       {cost.storage_latency_s, cost.storage_tensor_s, cost.storage_bytes_per_s})
    for (const double other : world->gather_all(std::span<const double>(&value, 1)))
      EXPECT_EQ(other, value);
}

}  // namespace
}  // namespace trireme::bench
