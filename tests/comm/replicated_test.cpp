// SPDX-License-Identifier: Apache-2.0
// Collectives with replicas: sums are over all ranks, shards and gathers are inside a replica. With
// a guaranteed order the bits are the same as without replicas.
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/payload.hpp"

namespace trireme::comm {
namespace {

using device::StreamMode;
using testing::element;
using testing::fill;
using testing::gradient;
using testing::ordered_sum;
using testing::paired_sum;
using testing::rounded;
using testing::set_element;

/// Every number of replicas with at least two ranks in each.
std::vector<int> replica_counts(int ranks) {
  std::vector<int> counts;
  for (int replicas = 2; replicas < ranks; ++replicas)
    if (ranks % replicas == 0)
      counts.push_back(replicas);
  return counts;
}

using Case = std::tuple<Transport, Reduction, DType, StreamMode>;

class Replicated : public ::testing::TestWithParam<Case> {
 protected:
  /// Calls `test` with each number of replicas.
  template <class Test>
  void with_each(const Test& test) {
    const auto [transport, reduction, dtype, mode] = GetParam();
    for (const int replicas : replica_counts(world_.size())) {
      SCOPED_TRACE(std::to_string(replicas) + " replicas");
      stream_ = device_->make_stream(mode, "comm");
      const Options options{.chunk_bytes = 1024, .replicas = {world_.size(), replicas}};
      const auto communicator = make_communicator(transport, reduction, world_, *device_, options);
      EXPECT_EQ(communicator->size(), world_.size() / replicas);
      EXPECT_EQ(communicator->rank(), world_.rank() % communicator->size());
      test(*communicator, replicas);
      stream_->synchronize();
      world_.barrier();  // no rank frees memory that a peer still reads
    }
  }

  [[nodiscard]] DType dtype() const { return std::get<DType>(GetParam()); }

  void expect_sum(float got, std::int64_t i, int replicas, int round) const {
    const auto reduction = std::get<Reduction>(GetParam());
    if (reduction != Reduction::sum) {
      const auto sum = reduction == Reduction::tree ? paired_sum : ordered_sum;
      ASSERT_EQ(got, sum(world_.size(), i, dtype(), round)) << "element " << i;
      return;
    }
    const int size = world_.size(), in_replica = size / replicas;
    double sum = 0, magnitude = 0, of_replicas = 0;
    for (int first = 0; first < size; first += in_replica) {
      double of_replica = 0;
      for (int r = first; r < first + in_replica; ++r)
        of_replica += rounded(gradient(r, i, round), dtype());
      for (int r = first; r < first + in_replica; ++r)
        magnitude += std::abs(rounded(gradient(r, i, round), dtype()));
      sum += of_replica;
      of_replicas += std::abs(of_replica);
    }
    // bf16 is rounded once inside each replica and once across replicas.
    const double added = magnitude * size * 0x1.0p-24;
    const double once = (of_replicas + added) * 0x1.0p-8;
    const double rounding =
        dtype() == DType::bf16 ? once + (std::abs(sum) + once + added) * 0x1.0p-8 : 0;
    ASSERT_NEAR(got, sum, added + rounding) << "element " << i;
  }

  MpiWorld world_;
  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> stream_;
};

TEST_P(Replicated, ReduceScatterSumsOverAllRanksIntoEveryReplicasShard) {
  with_each([&](Communicator& communicator, int replicas) {
    for (const std::int64_t pieces : {1, 43, 514}) {
      const std::int64_t shard = pieces * replicas;
      const auto buffer = communicator.allocate(
          static_cast<std::size_t>(shard * communicator.size()) * size_bytes(dtype()), "bucket");
      const auto shards = communicator.shards(buffer.view(dtype()));
      for (int round = 0; round < 3; ++round) {
        fill(shards->full, world_.rank(), round);
        communicator.reduce_scatter(*shards, BucketIndex{0}, *stream_);
        stream_->synchronize();
        for (std::int64_t i = 0; i < shard; ++i)
          expect_sum(element(shards->own.data, i, dtype()), communicator.rank() * shard + i,
                     replicas, round);
      }
      const auto all = world_.gather_all(
          std::string(reinterpret_cast<const char*>(shards->own.data), shards->own.bytes()));
      for (std::size_t r = 0; r < all.size(); ++r)
        EXPECT_EQ(all[r], all[r % static_cast<std::size_t>(communicator.size())])
            << "rank " << r << " and the first replica's have other bits";
      world_.barrier();
    }
  });
}

TEST_P(Replicated, AllGatherFillsTheBucketFromTheReplicasOwners) {
  with_each([&](Communicator& communicator, int replicas) {
    const std::int64_t shard = 129 * replicas;
    const auto buffer = communicator.allocate(
        static_cast<std::size_t>(shard * communicator.size()) * size_bytes(dtype()), "bucket");
    const auto shards = communicator.shards(buffer.view(dtype()));
    for (std::int64_t i = 0; i < shards->full.elements; ++i)
      set_element(buffer.data(), i, dtype(), std::nanf(""));
    for (std::int64_t i = 0; i < shard; ++i)
      set_element(shards->own.data, i, dtype(), gradient(world_.rank(), i));
    communicator.all_gather(*shards, BucketIndex{0}, *stream_);
    stream_->synchronize();
    const int first = world_.rank() - communicator.rank();
    for (int r = 0; r < communicator.size(); ++r)
      for (std::int64_t i = 0; i < shard; ++i)
        ASSERT_EQ(element(shards->of(r).data, i, dtype()), rounded(gradient(first + r, i), dtype()))
            << "shard of rank " << first + r << " element " << i;
  });
}

TEST_P(Replicated, AllReduceGivesEveryRankTheSameBits) {
  with_each([&](Communicator& communicator, int replicas) {
    const std::int64_t shard = 77 * replicas;
    const auto buffer = communicator.allocate(
        static_cast<std::size_t>(shard * communicator.size()) * size_bytes(dtype()), "bucket");
    const auto shards = communicator.shards(buffer.view(dtype()));
    fill(shards->full, world_.rank());
    communicator.all_reduce(*shards, BucketIndex{0}, *stream_);
    stream_->synchronize();
    for (std::int64_t i = 0; i < shards->full.elements; ++i)
      expect_sum(element(buffer.data(), i, dtype()), i, replicas, 0);
    const auto all = world_.gather_all(
        std::string(reinterpret_cast<const char*>(buffer.data()), shards->full.bytes()));
    for (const std::string& bits : all) EXPECT_EQ(bits, all[0]);
  });
}

TEST_P(Replicated, SumsOfAStepAreExact) {
  with_each([&](Communicator& communicator, int replicas) {
    const std::int64_t elements = std::int64_t{24} * replicas * communicator.size();
    const auto term = [](std::int64_t rank, std::int64_t i) {
      return (i % 2 == 0 ? 1 : -1) * ((std::int64_t{1} << 58U) + 1000 * i + rank * rank);
    };
    const auto buffer = communicator.allocate(
        static_cast<std::size_t>(elements) * sizeof(std::int64_t), "integers");
    const auto shards = communicator.shards(buffer.view(DType::i64));
    auto* values = shards->full.as<std::int64_t>();
    for (std::int64_t i = 0; i < elements; ++i) values[i] = term(world_.rank(), i);
    communicator.all_reduce(*shards, sums_of_the_step, *stream_);
    stream_->synchronize();
    for (std::int64_t i = 0; i < elements; ++i) {
      std::int64_t expected = 0;
      for (int r = 0; r < world_.size(); ++r) expected += term(r, i);
      ASSERT_EQ(values[i], expected) << "element " << i;
    }
  });
}

std::string case_name(const ::testing::TestParamInfo<Case>& tested) {
  const auto [transport, reduction, dtype, mode] = tested.param;
  return std::string(word(transport)) + "_" + word(reduction) + "_" + name(dtype) + "_" +
         (mode == StreamMode::inlined ? "inlined" : "concurrent");
}

INSTANTIATE_TEST_SUITE_P(
    ,
    Replicated,
    ::testing::Combine(::testing::Values(Transport::mpi, Transport::shared_memory),
                       ::testing::Values(Reduction::sum, Reduction::ordered, Reduction::tree),
                       ::testing::Values(DType::f32, DType::bf16),
                       ::testing::Values(StreamMode::inlined, StreamMode::concurrent)),
    case_name);

TEST(ReplicatedWorld, PartsKeepTheOrderOfRanksOfTheWhole) {
  MpiWorld world;
  MpiWorld part(world, world.rank() % 2);
  EXPECT_EQ(part.rank(), world.rank() / 2);
  EXPECT_EQ(part.size(), (world.size() + 1 - world.rank() % 2) / 2);
  EXPECT_EQ(part.host(), world.host());
  EXPECT_EQ(part.local_size(), part.size());
  std::int64_t sum = world.rank();
  part.sum({&sum, 1});
  std::int64_t expected = 0;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) expected += rank;
  EXPECT_EQ(sum, expected);
  world.set_deadline(7);
  EXPECT_EQ(part.deadline_s(), 7) << "the whole's watchdog watches over its parts";
}

TEST(ReplicatedWorld, RefusesOtherRanksAndUnequalReplicasThatAddGradients) {
  MpiWorld world;
  const auto device = device::make_cpu_device(1);
  const auto make = [&](const layout::ReplicaRanks& replicas, bool sums_inside) {
    return make_communicator(Transport::mpi, Reduction::sum, world, *device,
                             {.replicas = replicas, .sums_inside = sums_inside});
  };
  EXPECT_THROW((void)make({world.size() + 1, 2}, true), ContractError);
  if (world.size() < 3)
    return;
  const layout::ReplicaRanks unequal(std::vector{1, world.size() - 1});
  EXPECT_THROW((void)make(unequal, false), ContractError);
  EXPECT_EQ(make(unequal, true)->size(), world.rank() == 0 ? 1 : world.size() - 1);
}

}  // namespace
}  // namespace trireme::comm
