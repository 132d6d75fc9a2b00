// SPDX-License-Identifier: Apache-2.0
// One suite for all transports: transport x reduction x dtype x stream mode, with shard sizes from
// one element to several chunks, at every rank count of the ctest entries.
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "comm/payload.hpp"
#include "comm/transport/transports.hpp"

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

/// Small, so that a small shard already has several chunks.
constexpr std::size_t chunk_bytes = 1024;
/// fp32: less than one chunk, exactly one, a little more, and more chunks than the window holds.
const std::vector<std::int64_t> shard_sizes{1, 64, 251, 256, 257, 2503};

/// How the ranks are connected. The tests run on one host, which the hierarchical cases treat as
/// several.
enum class Wiring : std::uint8_t {
  mpi,
  shared_memory,
  blocks,   ///< nodes of consecutive ranks: 0 1 | 2 3
  cyclic,   ///< ranks distributed to nodes round robin: 0 2 | 1 3
  unequal,  ///< 0 | 1 2 | 3 4 5 6
  mixed,    ///< unequal and interleaved: 0 4 | 1 2 6 | 3 5
  around    ///< one node before and after the other: 0 1 5 6 | 2 3 4
};

using Case = std::tuple<Wiring, Reduction, DType, StreamMode>;

/// The pretended node of a rank. With blocks and cyclic all nodes have the same number of ranks.
int pretended_node(Wiring wiring, int rank, int size) {
  if (wiring == Wiring::unequal)
    return rank == 0 ? 0 : rank < 3 ? 1 : 2;
  if (wiring == Wiring::mixed)
    return std::array{0, 1, 1, 2, 0, 2, 1}[static_cast<std::size_t>(rank) % 7];
  if (wiring == Wiring::around)
    return rank < size / 3 || rank >= size - size / 3 ? 0 : 1;
  if (size % 2 != 0)
    return rank;
  return wiring == Wiring::blocks ? rank * 2 / size : rank % (size / 2);
}

/// Whether an earlier wiring gives the same nodes for this number of ranks.
bool repeats(Wiring wiring, int size) {
  const auto nodes = [size](Wiring of) {
    std::vector<std::set<int>> found(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank)
      found[static_cast<std::size_t>(pretended_node(of, rank, size))].insert(rank);
    return std::set(found.begin(), found.end());
  };
  for (auto earlier = Wiring::blocks; earlier < wiring;
       earlier = static_cast<Wiring>(static_cast<int>(earlier) + 1))
    if (nodes(earlier) == nodes(wiring))
      return true;
  return false;
}

std::unique_ptr<Communicator> connect(Wiring wiring,
                                      Reduction reduction,
                                      MpiWorld& world,
                                      device::Device& device,
                                      std::size_t exchange_bytes = Options{}.exchange_bytes) {
  const Options options{.chunk_bytes = chunk_bytes, .exchange_bytes = exchange_bytes};
  if (wiring == Wiring::mpi)
    return make_communicator(Transport::mpi, reduction, world, device, options);
  if (wiring == Wiring::shared_memory)
    return make_communicator(Transport::shared_memory, reduction, world, device, options);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split(world.comm(), pretended_node(wiring, world.rank(), world.size()), world.rank(),
                 &node);
  return make_node_communicator(Transport::hierarchical, reduction, world, device, options,
                                OwnedComm(node));
}

class Collectives : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (repeats(std::get<Wiring>(GetParam()), world_.size()))
      GTEST_SKIP() << "the nodes of another wiring";
    const bool concurrent = std::get<StreamMode>(GetParam()) == StreamMode::concurrent;
    if (world_.size() != 3 && concurrent != (dtype() == DType::bf16))
      GTEST_SKIP() << "every dtype in every mode of streams is for three ranks";
    device_ = device::make_cpu_device(1);
    stream_ = device_->make_stream(std::get<StreamMode>(GetParam()), "comm");
    communicator_ =
        connect(std::get<Wiring>(GetParam()), std::get<Reduction>(GetParam()), world_, *device_);
  }

  [[nodiscard]] DType dtype() const { return std::get<DType>(GetParam()); }
  [[nodiscard]] int rank() const { return communicator_->rank(); }
  [[nodiscard]] int size() const { return communicator_->size(); }
  [[nodiscard]] device::Buffer bucket(std::int64_t shard_elements) {
    return communicator_->allocate(
        static_cast<std::size_t>(shard_elements * size()) * size_bytes(dtype()), "test bucket");
  }

  /// Compares element i with the sum that this case guarantees, or with a bound for its error.
  void expect_sum(float got, std::int64_t i, int round) const {
    const auto reduction = std::get<Reduction>(GetParam());
    if (reduction == Reduction::tree) {
      ASSERT_EQ(got, paired_sum(size(), i, dtype(), round)) << "element " << i;
      return;
    }
    if (reduction == Reduction::ordered) {
      ASSERT_EQ(got, ordered_sum(size(), i, dtype(), round)) << "element " << i;
      return;
    }
    double sum = 0, magnitude = 0;
    for (int r = 0; r < size(); ++r) {
      const double term = rounded(gradient(r, i, round), dtype());
      sum += term;
      magnitude += std::abs(term);
    }
    // size - 1 additions, each with an error of half an ulp; bf16 is rounded once, at the end.
    const double added = magnitude * size() * 0x1.0p-24;
    const double rounding = dtype() == DType::bf16 ? (std::abs(sum) + added) * 0x1.0p-8 : 0;
    ASSERT_NEAR(got, sum, added + rounding) << "element " << i;
  }

  // Order of destruction: buffers (in the tests), communicator, stream, device, world.
  MpiWorld world_;
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
        ASSERT_EQ(element(shards->of(r).data, i, dtype()), rounded(gradient(r, i), dtype()))
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
    const auto all = world_.gather_all(
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
    world_.barrier();
  }
}

TEST_P(Collectives, BucketsMayBeOverwrittenAsSoonAsACollectiveEnds) {
  const std::int64_t shard = 2048;
  const auto buffer = bucket(shard);
  const auto shards = communicator_->shards(buffer.view(dtype()));
  const auto set_all = [&](const View& view, int value) {
    for (std::int64_t i = 0; i < view.elements; ++i)
      set_element(view.data, i, dtype(), static_cast<float>(value));
  };
  int sum_of_ranks = 0;
  for (int r = 0; r < size(); ++r) sum_of_ranks += r;
  // Small integers: sums are exact in every order of additions, and in bf16.
  for (int round = 0; round < 20; ++round) {
    set_all(shards->full, rank() + round % 3);
    communicator_->reduce_scatter(*shards, BucketIndex{0}, *stream_);
    stream_->synchronize();
    set_all(shards->full.slice(0, rank() * shard), -1);
    set_all(shards->full.slice((rank() + 1) * shard, (size() - rank() - 1) * shard), -1);
    for (std::int64_t i = 0; i < shard; ++i)
      ASSERT_EQ(element(shards->own.data, i, dtype()),
                static_cast<float>(sum_of_ranks + size() * (round % 3)))
          << "round " << round;
    set_all(shards->own, rank() + round % 5);
    communicator_->all_gather(*shards, BucketIndex{0}, *stream_);
    stream_->synchronize();
    set_all(shards->own, -1);
    for (int r = 0; r < size(); ++r) {
      if (r == rank())
        continue;
      const std::byte* theirs = shards->of(r).data;
      ASSERT_EQ(element(theirs, shard - 1, dtype()), static_cast<float>(r + round % 5))
          << "round " << round;
    }
  }
}

TEST_P(Collectives, ShardsAreEqualSlicesInRankOrder) {
  const auto buffer = bucket(48);
  const auto shards = communicator_->shards(buffer.view(dtype()));
  for (int r = 0; r < size(); ++r) {
    const View shard = shards->of(r);
    EXPECT_EQ(shard.elements, 48);
    EXPECT_EQ(shard.data - buffer.data(),
              static_cast<std::ptrdiff_t>(48 * r * static_cast<int>(size_bytes(dtype()))));
  }
  EXPECT_EQ(shards->own.data, shards->of(rank()).data);
}

TEST_P(Collectives, MemoryIsZeroAndBucketsMayShareIt) {
  const auto buffer = communicator_->allocate(
      static_cast<std::size_t>(3 * 64 * size()) * size_bytes(dtype()), "three buckets");
  for (std::size_t i = 0; i < buffer.bytes(); ++i) ASSERT_EQ(buffer.data()[i], std::byte{0});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 128, 0U);
  const std::size_t bucket_bytes = buffer.bytes() / 3;
  const auto middle =
      communicator_->shards(buffer.view(dtype(), bucket_bytes, std::int64_t{64} * size()));
  fill(middle->full, rank());
  communicator_->all_reduce(*middle, BucketIndex{0}, *stream_);
  stream_->synchronize();
  for (std::int64_t i = 0; i < middle->full.elements; ++i)
    expect_sum(element(middle->full.data, i, dtype()), i, 0);
  for (std::size_t i = 0; i < bucket_bytes; ++i) {
    ASSERT_EQ(buffer.data()[i], std::byte{0}) << "before the bucket";
    ASSERT_EQ(buffer.data()[2 * bucket_bytes + i], std::byte{0}) << "after the bucket";
  }
  EXPECT_EQ(communicator_->allocate(0, "nothing").bytes(), 0U);
}

class IntegerSums : public ::testing::TestWithParam<std::tuple<Wiring, Reduction>> {};

TEST_P(IntegerSums, AreExactAndTheSameOnEveryRank) {
  MpiWorld world;
  if (repeats(std::get<Wiring>(GetParam()), world.size()))
    GTEST_SKIP() << "the nodes of another wiring";
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(StreamMode::concurrent, "comm");
  const auto communicator =
      connect(std::get<Wiring>(GetParam()), std::get<Reduction>(GetParam()), world, *device);
  // The sum over up to eight ranks fits; neither fp32 nor fp64 represents it exactly.
  const auto term = [](std::int64_t rank, std::int64_t i) {
    return (i % 2 == 0 ? 1 : -1) * ((std::int64_t{1} << 58U) + 1000 * i + rank * rank);
  };
  for (const std::int64_t shard : {1, 24, 142, 300}) {
    SCOPED_TRACE(shard);
    const std::int64_t elements = shard * world.size();
    const auto buffer = communicator->allocate(
        static_cast<std::size_t>(elements) * sizeof(std::int64_t), "integers");
    const auto shards = communicator->shards(buffer.view(DType::i64));
    auto* values = shards->full.as<std::int64_t>();
    for (std::int64_t i = 0; i < elements; ++i) values[i] = term(world.rank(), i);
    communicator->all_reduce(*shards, sums_of_the_step, *stream);
    stream->synchronize();
    for (std::int64_t i = 0; i < elements; ++i) {
      std::int64_t expected = 0;
      for (int r = 0; r < world.size(); ++r) expected += term(r, i);
      ASSERT_EQ(values[i], expected) << "element " << i;
    }
    world.barrier();  // no rank frees memory that a peer still reads
  }
}

const char* wiring_name(Wiring wiring) {
  switch (wiring) {
    case Wiring::mpi:
      return "mpi";
    case Wiring::shared_memory:
      return "shared_memory";
    case Wiring::blocks:
      return "hierarchical_blocks";
    case Wiring::cyclic:
      return "hierarchical_cyclic";
    case Wiring::unequal:
      return "hierarchical_unequal";
    case Wiring::mixed:
      return "hierarchical_mixed";
    case Wiring::around:
      return "hierarchical_around";
  }
  return "?";
}

std::string case_name(const ::testing::TestParamInfo<Case>& tested) {
  const auto [wiring, reduction, dtype, mode] = tested.param;
  return std::string(wiring_name(wiring)) + "_" + word(reduction) + "_" + name(dtype) + "_" +
         (mode == StreamMode::inlined ? "inlined" : "concurrent");
}

INSTANTIATE_TEST_SUITE_P(
    ,
    Collectives,
    ::testing::Combine(::testing::Values(Wiring::mpi,
                                         Wiring::shared_memory,
                                         Wiring::blocks,
                                         Wiring::cyclic,
                                         Wiring::unequal,
                                         Wiring::mixed),
                       ::testing::Values(Reduction::sum, Reduction::ordered, Reduction::tree),
                       ::testing::Values(DType::f32, DType::bf16),
                       ::testing::Values(StreamMode::inlined, StreamMode::concurrent)),
    case_name);

INSTANTIATE_TEST_SUITE_P(,
                         IntegerSums,
                         ::testing::Combine(::testing::Values(Wiring::mpi,
                                                              Wiring::shared_memory,
                                                              Wiring::blocks,
                                                              Wiring::cyclic,
                                                              Wiring::unequal,
                                                              Wiring::mixed),
                                            ::testing::Values(Reduction::sum, Reduction::tree)),
                         [](const auto& tested) {
                           return std::string(wiring_name(std::get<Wiring>(tested.param))) + "_" +
                                  word(std::get<Reduction>(tested.param));
                         });

/// The first node adds its first ranks, and later its last ones: it starts the sums of later chunks
/// before it continues those of earlier ones.
TEST(OrderedSums, ContinueOnTheNodeThatStartedThem) {
  MpiWorld world;
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(StreamMode::inlined, "comm");
  const auto communicator = connect(Wiring::around, Reduction::ordered, world, *device);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t shard : {257, 2503, 2560})
      for (int round = 0; round < 3; ++round) {
        SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(shard));
        const auto buffer = communicator->allocate(
            static_cast<std::size_t>(shard * world.size()) * size_bytes(dtype), "test bucket");
        const auto shards = communicator->shards(buffer.view(dtype));
        fill(shards->full, world.rank(), round);
        communicator->reduce_scatter(*shards, BucketIndex{0}, *stream);
        stream->synchronize();
        for (std::int64_t i = 0; i < shard; ++i) {
          const std::int64_t at = world.rank() * shard + i;
          ASSERT_EQ(element(shards->own.data, i, dtype),
                    ordered_sum(world.size(), at, dtype, round))
              << "element " << at;
        }
        world.barrier();
      }
}

/// A window holds two messages, or the messages of one sum.
TEST(BoundedScratch, SumsInTheGuaranteedOrderThroughTheSmallestWindow) {
  MpiWorld world;
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(StreamMode::inlined, "comm");
  for (const Wiring wiring :
       {Wiring::mpi, Wiring::blocks, Wiring::cyclic, Wiring::mixed, Wiring::around})
    for (const Reduction reduction : {Reduction::ordered, Reduction::tree})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(std::string(word(reduction)) + " " + name(dtype));
        const auto communicator = connect(wiring, reduction, world, *device, 1);
        const std::int64_t shard = 2503, elements = shard * world.size();
        const auto buffer = communicator->allocate(
            static_cast<std::size_t>(elements) * size_bytes(dtype), "test bucket");
        const auto shards = communicator->shards(buffer.view(dtype));
        fill(shards->full, world.rank());
        communicator->reduce_scatter(*shards, BucketIndex{0}, *stream);
        stream->synchronize();
        for (std::int64_t i = 0; i < shard; ++i) {
          const std::int64_t at = world.rank() * shard + i;
          ASSERT_EQ(element(shards->own.data, i, dtype), reduction == Reduction::tree
                                                             ? paired_sum(world.size(), at, dtype)
                                                             : ordered_sum(world.size(), at, dtype))
              << "element " << at;
        }
        world.barrier();
      }
}

TEST(MakeCommunicator, AutoSharesMemoryOnOneHost) {
  MpiWorld world;
  const auto device = device::make_cpu_device(1);
  const auto made = make_communicator(Transport::automatic, Reduction::sum, world, *device);
  EXPECT_EQ(made->name(), world.size() == 1 ? "self" : "shared_memory");
  EXPECT_EQ(made->size(), world.size());
  EXPECT_EQ(made->rank(), world.rank());
}

}  // namespace
}  // namespace trireme::comm
