// SPDX-License-Identifier: Apache-2.0
// One suite for every transport: transport x reduction x dtype x stream mode, over shard sizes from
// one element to several chunks, at every rank count that ctest starts it with.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "comm/payload.hpp"

namespace trireme::comm {
namespace {

using device::StreamMode;
using testing::element;
using testing::fill;
using testing::gradient;
using testing::ordered_sum;
using testing::rounded;
using testing::set_element;

/// Small, so that a modest shard already spans several chunks.
constexpr std::size_t chunk_bytes = 1024;
/// fp32: less than one chunk, exactly one, a little more, and more chunks than the window holds.
const std::vector<std::int64_t> shard_sizes{1, 64, 251, 256, 257, 2503};

using Case = std::tuple<Transport, Reduction, DType, StreamMode>;

class Collectives : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    world_ = make_mpi_world();
    device_ = device::make_cpu_device(1);
    stream_ = device_->make_stream(std::get<StreamMode>(GetParam()), "comm");
    communicator_ =
        make_communicator(std::get<Transport>(GetParam()), std::get<Reduction>(GetParam()), *world_,
                          *device_, {.deadline_s = 60, .chunk_bytes = chunk_bytes});
  }

  [[nodiscard]] DType dtype() const { return std::get<DType>(GetParam()); }
  [[nodiscard]] int rank() const { return communicator_->rank(); }
  [[nodiscard]] int size() const { return communicator_->size(); }
  [[nodiscard]] device::Buffer bucket(std::int64_t shard_elements) {
    return communicator_->allocate(
        static_cast<std::size_t>(shard_elements * size()) * size_bytes(dtype()), "test bucket");
  }

  /// The sum that this case promises for element i, or a bound around it.
  void expect_sum(float got, std::int64_t i, int round) const {
    const float ordered = ordered_sum(size(), i, dtype(), round);
    if (std::get<Reduction>(GetParam()) == Reduction::ordered || dtype() == DType::bf16) {
      ASSERT_EQ(got, ordered) << "element " << i;
      return;
    }
    double sum = 0, magnitude = 0;
    for (int r = 0; r < size(); ++r) {
      const double term = rounded(gradient(r, i, round), dtype());
      sum += term;
      magnitude += std::abs(term);
    }
    // size - 1 additions, each with half an ulp of a partial sum.
    ASSERT_NEAR(got, sum, magnitude * size() * 0x1.0p-24) << "element " << i;
  }

  // Order of destruction: buffers (in the tests), communicator, stream, device, world.
  std::unique_ptr<World> world_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<Communicator> communicator_;
};

TEST_P(Collectives, ReduceScatterLeavesTheSumInTheOwnShard) {
  for (const std::int64_t shard : shard_sizes) {
    SCOPED_TRACE(shard);
    const auto buffer = bucket(shard);
    const auto shards = communicator_->shards(buffer.view(dtype()));
    std::string first;
    for (int repeat = 0; repeat < 2; ++repeat) {
      fill(shards->full, rank());
      communicator_->reduce_scatter(*shards, BucketIndex{1}, *stream_);
      stream_->synchronize();
      for (std::int64_t i = 0; i < shard; ++i)
        expect_sum(element(shards->own.data, i, dtype()), rank() * shard + i, 0);
      const std::string bits(reinterpret_cast<const char*>(shards->own.data), shards->own.bytes());
      if (repeat == 0)
        first = bits;
      EXPECT_EQ(bits, first) << "not the same bits the second time";
    }
  }
}

TEST_P(Collectives, AllGatherFillsTheBucketFromTheOwners) {
  for (const std::int64_t shard : shard_sizes) {
    SCOPED_TRACE(shard);
    const auto buffer = bucket(shard);
    const auto shards = communicator_->shards(buffer.view(dtype()));
    for (std::int64_t i = 0; i < shards->full.elements; ++i)
      set_element(buffer.data(), i, dtype(), std::nanf(""));
    for (std::int64_t i = 0; i < shard; ++i)
      set_element(shards->own.data, i, dtype(), gradient(rank(), i));
    communicator_->all_gather(*shards, BucketIndex{2}, *stream_);
    stream_->synchronize();
    for (int r = 0; r < size(); ++r)
      for (std::int64_t i = 0; i < shard; ++i)
        ASSERT_EQ(element(shards->ranks[static_cast<std::size_t>(r)].data, i, dtype()),
                  rounded(gradient(r, i), dtype()))
            << "shard of rank " << r << " element " << i;
  }
}

TEST_P(Collectives, AllReduceGivesEveryRankTheSameBits) {
  for (const std::int64_t shard : shard_sizes) {
    SCOPED_TRACE(shard);
    const auto buffer = bucket(shard);
    const auto shards = communicator_->shards(buffer.view(dtype()));
    fill(shards->full, rank());
    communicator_->all_reduce(*shards, BucketIndex{3}, *stream_);
    stream_->synchronize();
    for (std::int64_t i = 0; i < shards->full.elements; ++i)
      expect_sum(element(buffer.data(), i, dtype()), i, 0);
    const auto all = world_->gather_all(
        std::string(reinterpret_cast<const char*>(buffer.data()), shards->full.bytes()));
    for (const std::string& bits : all) EXPECT_EQ(bits, all[0]);
  }
}

TEST_P(Collectives, RunInTheOrderInWhichTheyWereEnqueued) {
  constexpr int num_buckets = 5, rounds = 3;
  std::vector<device::Buffer> buffers;
  std::vector<std::unique_ptr<Shards>> shards;
  for (int b = 0; b < num_buckets; ++b) {
    buffers.push_back(bucket(131 * (b + 1)));
    shards.push_back(communicator_->shards(buffers.back().view(dtype())));
  }
  for (int round = 0; round < rounds; ++round) {
    for (int b = 0; b < num_buckets; ++b)
      fill(shards[static_cast<std::size_t>(b)]->full, rank(), round);
    for (int b = 0; b < num_buckets; ++b)
      communicator_->reduce_scatter(*shards[static_cast<std::size_t>(b)], BucketIndex{b}, *stream_);
    for (int b = num_buckets; b-- > 0;)
      communicator_->all_gather(*shards[static_cast<std::size_t>(b)], BucketIndex{b}, *stream_);
    stream_->synchronize();
    for (int b = 0; b < num_buckets; ++b) {
      const View full = shards[static_cast<std::size_t>(b)]->full;
      for (std::int64_t i = 0; i < full.elements; ++i)
        expect_sum(element(full.data, i, dtype()), i, round);
    }
    world_->barrier();
  }
}

TEST_P(Collectives, ShardsAreEqualSlicesInRankOrder) {
  const auto buffer = bucket(48);
  const auto shards = communicator_->shards(buffer.view(dtype()));
  ASSERT_EQ(shards->ranks.size(), static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    const View shard = shards->ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(shard.elements, 48);
    EXPECT_EQ(shard.data - buffer.data(),
              static_cast<std::ptrdiff_t>(48 * r * static_cast<int>(size_bytes(dtype()))));
  }
  EXPECT_EQ(shards->own.data, shards->ranks[static_cast<std::size_t>(rank())].data);
}

std::string case_name(const ::testing::TestParamInfo<Case>& tested) {
  const auto [transport, reduction, dtype, mode] = tested.param;
  return std::string(word(transport)) + "_" + word(reduction) + "_" + name(dtype) + "_" +
         (mode == StreamMode::inlined ? "inlined" : "concurrent");
}

INSTANTIATE_TEST_SUITE_P(,
                         Collectives,
                         ::testing::Combine(::testing::Values(Transport::mpi),
                                            ::testing::Values(Reduction::sum, Reduction::ordered),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(StreamMode::inlined,
                                                              StreamMode::concurrent)),
                         case_name);

}  // namespace
}  // namespace trireme::comm
