// SPDX-License-Identifier: Apache-2.0
#include "bench/collectives.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/collectives_check.hpp"

namespace trireme::bench {
namespace {

using ::testing::HasSubstr;

TEST(BenchReduce, FactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor("MPI_Allreduce", 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor("reduce_scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("MPI_Allgather", 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor("memcpy", 8), 1.0);
}

TEST(BenchReduce, OneRowPerOperationTransportDtypeAndSize) {
  const auto world = comm::make_mpi_world();
  const auto device = device::make_cpu_device(1);
  CollectivesBenchRequest request;
  request.bytes = {1, 5000};
  request.transports = {comm::Transport::mpi, comm::Transport::shared_memory};
  request.dtypes = {DType::f32, DType::bf16};
  request.repetitions = 2;
  const auto rows = bench_collectives(*world, *device, request);
  // 3 operations per size, transport and dtype; a memcpy per size and dtype; for fp32 MPI's three.
  EXPECT_EQ(rows.size(), 2U * (2U * 2U * 3U + 2U + 3U));
  std::set<std::string> operations;
  for (const CollectivesBenchRow& row : rows) {
    operations.insert(row.operation);
    EXPECT_EQ(row.ranks, world->size());
    const auto granule = static_cast<std::int64_t>(size_bytes(row.dtype)) * row.ranks;
    EXPECT_EQ(row.bytes % granule, 0) << row.operation;
    EXPECT_TRUE(row.bytes == granule || row.bytes - 5000 < granule) << row.bytes;
    EXPECT_EQ(row.count * static_cast<std::int64_t>(size_bytes(row.dtype)), row.bytes);
    EXPECT_EQ(row.wrong, 0) << row.operation << " by " << row.transport;
    EXPECT_EQ(row.redop == "none", row.operation.find("educe") == std::string::npos);
    EXPECT_GT(row.seconds, 0) << row.operation;
    EXPECT_NEAR(row.algbw * row.seconds, static_cast<double>(row.bytes), 1e-3);
    EXPECT_NEAR(row.busbw, row.algbw * bus_factor(row.operation, row.ranks), 1e-3);
  }
  EXPECT_EQ(operations,
            (std::set<std::string>{"reduce_scatter", "all_gather", "all_reduce", "MPI_Allreduce",
                                   "MPI_Reduce_scatter_block", "MPI_Allgather", "memcpy"}));
}

/// Errors of a collective, each of which some rank must count.
TEST(BenchReduce, CountsWrongElements) {
  const auto world = comm::make_mpi_world();
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::inlined, "bench");
  const int ranks = world->size();
  const std::int64_t shard = 20;
  std::vector<float> bucket(static_cast<std::size_t>(shard * ranks));
  const View full = view_of(bucket.data(), shard * ranks);
  const Trial copy{Outcome::copied, full, full, 0, 0, shard};
  const Trial sum{Outcome::summed, full, full, 0, 0, shard};
  const auto nothing = [] {};
  EXPECT_EQ(count_wrong(*world, *stream, copy, nothing), 0);
  EXPECT_EQ(count_wrong(*world, *stream, copy,
                        [&] { std::rotate(bucket.begin(), bucket.begin() + 1, bucket.end()); }),
            full.elements * ranks * 2 / 5);
  const auto missed = count_wrong(*world, *stream, sum, nothing);  // other ranks' terms are missing
  EXPECT_EQ(missed > 0, ranks > 1) << missed;
  std::int64_t untouched = 0;  // nothing is written to the memory that is checked
  std::vector<float> aside(bucket.size());
  const Trial away{Outcome::copied, view_of(aside.data(), full.elements), full, 0, 0, shard};
  untouched = count_wrong(*world, *stream, away, nothing);
  EXPECT_EQ(untouched, full.elements * ranks);
}

TEST(BenchReduce, RunsWithoutBaselinesAndMpi) {
  const auto world = comm::make_self_world();
  const auto device = device::make_cpu_device(1);
  CollectivesBenchRequest request;
  request.bytes = {4096};
  request.repetitions = 1;
  EXPECT_EQ(bench_collectives(*world, *device, request).size(), 4U);  // MPI's rows need MPI
  request.baselines = false;
  const auto rows = bench_collectives(*world, *device, request);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].transport, "self");
}

TEST(BenchReduce, TableAndJsonHaveTheSameValues) {
  const std::vector<CollectivesBenchRow> rows{
      {"all_reduce", "mpi", DType::bf16, 2, 2'000'000, 1'000'000, "sum", 7, 0.001, 2e9, 2e9}};
  EXPECT_EQ(collectives_json(rows).dump(),
            "{\"rows\":[{\"operation\":\"all_reduce\",\"transport\":\"mpi\",\"dtype\":\"bf16\","
            "\"ranks\":2,\"bytes\":2000000,\"count\":1000000,\"redop\":\"sum\",\"seconds\":0.001,"
            "\"algbw\":2000000000.0,\"busbw\":2000000000.0,\"wrong\":7}]}");
  const std::string table = collectives_table(rows);
  EXPECT_EQ(table,
            "operation                 transport       ranks        size       count  type    redop"
            "        time    algbw    busbw  #wrong\n"
            "                                                        (B)  (elements)               "
            "        (us)   (GB/s)   (GB/s)        \n"
            "all_reduce                mpi                 2     2000000     1000000  bf16      sum"
            "     1000.00    2.000    2.000       7\n");
}

}  // namespace
}  // namespace trireme::bench
