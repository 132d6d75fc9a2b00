// SPDX-License-Identifier: Apache-2.0
// Collectives of NCCL between ranks that share one GPU (support/shared_gpu.hpp). These tests check
// layout, order and sums, not speed.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/payload.hpp"
#include "comm/transfer_payload.hpp"

#include "support/shared_gpu.hpp"

namespace trireme::comm {
namespace {

class Nccl : public test::OverNccl {
 protected:
  void SetUp() override {
    OverNccl::SetUp();
    if (device_)  // without a GPU the test is skipped
      stream_ = device_->make_stream(device::StreamMode::concurrent, "communication");
  }

  /// Small integers, exact in bf16: element i of rank r.
  static float term(int rank, std::int64_t i) { return static_cast<float>((i + 3 * rank) % 7); }
  float sum(std::int64_t i) const {
    float all = 0;
    for (int r = 0; r < world_.size(); ++r) all += term(r, i);
    return all;
  }

  void write(View to, const std::vector<float>& values) {
    std::vector<Bf16> rounded;
    for (const float value : values) rounded.emplace_back(value);
    device_->copy(to,
                  to.dtype == DType::bf16 ? ConstView(view_of(rounded.data(), to.elements))
                                          : ConstView(view_of(values.data(), to.elements)),
                  *compute_);
    compute_->synchronize();
  }
  std::vector<float> read(ConstView from) {
    std::vector<Bf16> rounded(static_cast<std::size_t>(from.elements));
    std::vector<float> values(rounded.size());
    device_->copy(from.dtype == DType::bf16 ? view_of(rounded.data(), from.elements)
                                            : view_of(values.data(), from.elements),
                  from, *stream_);
    stream_->synchronize();
    if (from.dtype == DType::bf16)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(rounded[i]);
    return values;
  }

  /// A new bucket with this rank's terms.
  device::Buffer bucket(std::int64_t elements) {
    device::Buffer buffer = communicator_->allocate(
        static_cast<std::size_t>(elements) * size_bytes(GetParam()), "test bucket");
    std::vector<float> values(static_cast<std::size_t>(elements));
    for (std::int64_t i = 0; i < elements; ++i)
      values[static_cast<std::size_t>(i)] = term(world_.rank(), i);
    write(buffer.view(GetParam()), values);
    return buffer;
  }

  const std::vector<std::int64_t> shard_sizes_{1, 64, 257, 65'536};

  std::unique_ptr<device::Stream> stream_;
};

TEST_P(Nccl, ReducesAndGathers) {
  for (const std::int64_t shard : shard_sizes_) {
    const auto memory = bucket(shard * world_.size());
    const auto shards = communicator_->shards(memory.view(GetParam()));
    communicator_->reduce_scatter(*shards, BucketIndex{3}, *stream_);
    const auto own = read(shards->own);
    for (std::int64_t i = 0; i < shard; ++i)
      ASSERT_EQ(own[static_cast<std::size_t>(i)], sum(world_.rank() * shard + i)) << i;
    communicator_->all_gather(*shards, BucketIndex{3}, *stream_);
    const auto all = read(shards->full);
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(all[i], sum(static_cast<std::int64_t>(i))) << i;
  }
}

TEST_P(Nccl, AllReducesOnEveryRank) {
  const auto memory = bucket(1000 * world_.size());
  const auto shards = communicator_->shards(memory.view(GetParam()));
  communicator_->all_reduce(*shards, BucketIndex{0}, *stream_);
  const auto all = read(shards->full);
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(all[i], sum(static_cast<std::int64_t>(i))) << i;
}

/// With two replicas: sums over all ranks; shards and gathers inside a replica.
TEST_P(Nccl, ReducesAcrossReplicas) {
  if (world_.size() % 2 != 0 || world_.size() == 2)
    GTEST_SKIP() << "no two replicas of several ranks";
  const int ranks = world_.size() / 2, rank = world_.rank() % ranks;
  const auto communicator = make_communicator(Transport::nccl, Reduction::sum, world_, *device_,
                                              {.most_blocks = 2, .replicas = {world_.size(), 2}});
  ASSERT_EQ(communicator->size(), ranks);
  for (const std::int64_t shard : {2, 514, 65'536}) {
    const std::int64_t elements = shard * ranks;
    const auto memory = communicator->allocate(
        static_cast<std::size_t>(elements) * size_bytes(GetParam()), "test bucket");
    const auto shards = communicator->shards(memory.view(GetParam()));
    std::vector<float> values;
    for (std::int64_t i = 0; i < elements; ++i) values.push_back(term(world_.rank(), i));
    write(shards->full, values);
    communicator->reduce_scatter(*shards, BucketIndex{0}, *stream_);
    const auto own = read(shards->own);
    for (std::int64_t i = 0; i < shard; ++i)
      ASSERT_EQ(own[static_cast<std::size_t>(i)], sum(rank * shard + i)) << i;
    communicator->all_gather(*shards, BucketIndex{0}, *stream_);
    const auto all = read(shards->full);
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(all[i], sum(static_cast<std::int64_t>(i))) << i;
    write(shards->full, values);
    communicator->all_reduce(*shards, BucketIndex{0}, *stream_);
    const auto everywhere = read(shards->full);
    for (std::size_t i = 0; i < everywhere.size(); ++i)
      ASSERT_EQ(everywhere[i], sum(static_cast<std::int64_t>(i))) << i;
    world_.barrier();
  }
}

/// The sum depends on every rounding: with more than two ranks, NCCL's own bf16 sum differs in its
/// bits.
TEST_P(Nccl, RoundsASumOnceAndInRankOrder) {
  const std::int64_t shard = 70'001, elements = shard * world_.size();
  // The smallest memory for terms is 8 KiB per rank, so that a shard needs several pieces.
  const auto communicator = make_communicator(Transport::nccl, Reduction::sum, world_, *device_,
                                              {.most_blocks = 2, .bf16_sum_bytes = 1});
  for (const bool everywhere : {false, true}) {
    const auto memory = communicator->allocate(
        static_cast<std::size_t>(elements) * size_bytes(GetParam()), "test bucket");
    const auto shards = communicator->shards(memory.view(GetParam()));
    std::vector<float> values;
    for (std::int64_t i = 0; i < elements; ++i)
      values.push_back(testing::gradient(world_.rank(), i));
    write(shards->full, values);
    if (everywhere)
      communicator->all_reduce(*shards, BucketIndex{0}, *stream_);
    else
      communicator->reduce_scatter(*shards, BucketIndex{0}, *stream_);
    const auto got = read(everywhere ? shards->full : shards->own);
    const std::int64_t first = everywhere ? 0 : world_.rank() * shard;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto at = first + static_cast<std::int64_t>(i);
      const float expected = testing::ordered_sum(world_.size(), at, GetParam());
      if (GetParam() == DType::bf16)
        ASSERT_EQ(got[i], expected) << "element " << at;
      else
        ASSERT_NEAR(got[i], expected, 1e-2F) << "element " << at;
    }
    world_.barrier();
  }
}

TEST_P(Nccl, UsesTheLibrarysSumWhereRequested) {
  const auto communicator = make_communicator(Transport::nccl, Reduction::sum, world_, *device_,
                                              {.most_blocks = 2, .bf16_sum = NcclBf16Sum::library});
  const auto memory = bucket(1000 * world_.size());
  const auto shards = communicator->shards(memory.view(GetParam()));
  communicator->all_reduce(*shards, BucketIndex{0}, *stream_);
  const auto all = read(shards->full);
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(all[i], sum(static_cast<std::int64_t>(i))) << i;
}

TEST_P(Nccl, AllocatesMemoryForTermsOnlyForSumsOfBf16) {
  EXPECT_EQ(bf16_term_bytes({}, 2), 0U);
  EXPECT_EQ(bf16_term_bytes({.bf16_sum = NcclBf16Sum::library}, 3), 0U);
  EXPECT_EQ(bf16_term_bytes({.bf16_sum_bytes = 0}, 3), 0U);
  EXPECT_EQ(bf16_term_bytes({}, 3), std::size_t{32} << 20U);
  EXPECT_EQ(bf16_term_bytes({.bf16_sum_bytes = 1}, 3), 3U * 8192U);
  const auto communicator = make_communicator(Transport::nccl, Reduction::sum, world_, *device_,
                                              {.most_blocks = 2, .bf16_sum_bytes = 0});
  const auto memory = bucket(1000 * world_.size());
  const auto shards = communicator->shards(memory.view(GetParam()));
  if (GetParam() == DType::bf16 && world_.size() > 2) {
    EXPECT_THROW(communicator->all_reduce(*shards, BucketIndex{0}, *stream_), ContractError);
    EXPECT_THROW(communicator->reduce_scatter(*shards, BucketIndex{0}, *stream_), ContractError);
    return;
  }
  communicator->all_reduce(*shards, BucketIndex{0}, *stream_);
  const auto all = read(shards->full);
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(all[i], sum(static_cast<std::int64_t>(i))) << i;
}

TEST_P(Nccl, AddsIntegersExactly) {
  const std::int64_t elements = std::int64_t{142} * world_.size();
  const auto memory = communicator_->allocate(
      static_cast<std::size_t>(elements) * sizeof(std::int64_t), "integers");
  const auto shards = communicator_->shards(memory.view(DType::i64));
  const auto term_of = [](std::int64_t rank, std::int64_t i) {
    return (std::int64_t{1} << 58U) + 1000 * i - rank;
  };
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < elements; ++i) values.push_back(term_of(world_.rank(), i));
  device_->copy(shards->full, view_of(values.data(), elements), *stream_);
  communicator_->all_reduce(*shards, sums_of_the_step, *stream_);
  device_->copy(view_of(values.data(), elements), shards->full, *stream_);
  stream_->synchronize();
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t expected = 0;
    for (int r = 0; r < world_.size(); ++r) expected += term_of(r, i);
    ASSERT_EQ(values[static_cast<std::size_t>(i)], expected) << i;
  }
}

TEST_P(Nccl, WaitsForEventsOfCompute) {
  const auto memory = bucket(4096 * world_.size());
  const auto shards = communicator_->shards(memory.view(GetParam()));
  const auto ready = device_->make_event();
  for (int round = 0; round < 3; ++round) {
    device_->fill_zero(shards->full, *compute_);
    compute_->record(*ready);
    stream_->wait(*ready);
    communicator_->all_reduce(*shards, BucketIndex{0}, *stream_);
    for (const float value : read(shards->full)) ASSERT_EQ(value, 0);
  }
}

/// After a rank is lost and the others continue, operations that it did not join end.
TEST_P(Nccl, IsReplacedAfterALoss) {
  communicator_.reset();  // its world ends at a loss
  {
    MpiWorld world;
    world.set_deadline(60);
    world.continues_after_loss = true;
    const auto communicator =
        make_communicator(Transport::nccl, Reduction::sum, world, *device_,
                          {.registers_memory = true, .most_blocks = 2, .bf16_sum_bytes = 0});
    const auto memory = communicator->allocate(4096, "bucket without an end");
    const auto shards = communicator->shards(memory.view(DType::f32, 0, 8 * world.size()));
    if (world.rank() == 0)
      communicator->all_reduce(*shards, BucketIndex{0}, *stream_);
    world_.barrier();  // rank 0 enqueued it, and no other rank will
    EXPECT_NO_THROW(world.expect_no_loss());
    revoke_all();
    stream_->synchronize();
    EXPECT_THROW(world.expect_no_loss(), LostRank);
    EXPECT_THROW(communicator->all_reduce(*shards, BucketIndex{0}, *stream_), LostRank);
  }
  MpiWorld world(without_lost_ranks(MPI_COMM_WORLD));
  communicator_ =
      make_communicator(Transport::nccl, Reduction::sum, world, *device_, {.most_blocks = 2});
  {
    const auto memory = bucket(64 * world.size());
    const auto shards = communicator_->shards(memory.view(GetParam()));
    communicator_->all_reduce(*shards, BucketIndex{0}, *stream_);
    const auto all = read(shards->full);
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(all[i], sum(static_cast<std::int64_t>(i))) << i;
  }
  communicator_.reset();  // must be destroyed before its world
}

TEST_P(Nccl, RefusesAnOrderOfAdditions) {
  EXPECT_THROW((void)make_communicator(Transport::nccl, Reduction::ordered, world_, *device_, {}),
               UserError);
  EXPECT_THROW((void)make_communicator(Transport::mpi, Reduction::sum, world_, *device_, {}),
               UserError);
}

/// Messages of one direction between this rank and all others, in memory of the GPU.
class Messages {
 public:
  Messages(device::Device& device, device::Stream& stream, int rank, int size, bool sends)
      : device_(device), stream_(stream), rank_(rank), sends_(sends) {
    for (int peer = 0; peer < size; ++peer)
      for (const std::int64_t elements : peer == rank ? std::vector<std::int64_t>{}
                                         : sends      ? sizes(rank, peer)
                                                      : sizes(peer, rank)) {
        memory_.push_back(
            device.allocate(static_cast<std::size_t>(elements) * sizeof(float), "test"));
        list.push_back({peer, memory_.back().view(DType::f32, 0, elements)});
      }
  }
  void write(int round) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::vector<float> values = expected(i, round);
      device_.copy(list[i].at, view_of(values.data(), list[i].at.elements), stream_);
      stream_.synchronize();
    }
  }
  void expect(int round) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      std::vector<float> values(static_cast<std::size_t>(list[i].at.elements));
      device_.copy(view_of(values.data(), list[i].at.elements), list[i].at, stream_);
      stream_.synchronize();
      EXPECT_EQ(values, expected(i, round)) << "message " << i;
    }
  }

  std::vector<Message> list;

 private:
  [[nodiscard]] std::vector<float> expected(std::size_t i, int round) const {
    const int peer = list[i].peer;
    const std::size_t message = i > 0 && list[i - 1].peer == peer ? 1 : 0;
    std::vector<float> values;
    for (std::int64_t e = 0; e < list[i].at.elements; ++e)
      values.push_back(sends_ ? value(rank_, peer, message, e, round)
                              : value(peer, rank_, message, e, round));
    return values;
  }

  device::Device& device_;
  device::Stream& stream_;
  const int rank_;
  const bool sends_;
  std::vector<device::Buffer> memory_;
};

TEST(NcclTransfer, SendsEveryMessageAndSendsItBack) {
  TRIREME_NEEDS_GPU();
  MpiWorld world;
  world.set_deadline(60);
  test::pretend_to_be_on_a_host_of_ones_own(world.rank());
  const auto device = device::make_cuda_device(0);
  const auto stream = device->make_stream(device::StreamMode::inlined, "compute");
  Messages outgoing(*device, *stream, world.rank(), world.size(), true);
  Messages incoming(*device, *stream, world.rank(), world.size(), false);
  const auto communicator =
      make_communicator(Transport::nccl, Reduction::sum, world, *device, {.most_blocks = 2});
  const auto transfer = make_transfer(world, *communicator, {{outgoing.list, incoming.list}});
  for (int round = 0; round < 2; ++round) {
    outgoing.write(round);
    transfer->enqueue(0, Direction::send, *stream);
    incoming.expect(round);
    outgoing.expect(round);
    incoming.write(round + 2);  // other values are sent back
    transfer->enqueue(0, Direction::send_back, *stream);
    outgoing.expect(round + 2);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes,
                         Nccl,
                         ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& made) { return std::string(name(made.param)); });

TEST(NcclWithoutGpu, IsRefusedOnACpu) {
  MpiWorld world;
  const auto device = device::make_cpu_device(1);
  EXPECT_THROW((void)make_communicator(Transport::nccl, Reduction::sum, world, *device, {}),
               UserError);
}

}  // namespace
}  // namespace trireme::comm
