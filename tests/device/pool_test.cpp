// SPDX-License-Identifier: Apache-2.0
#include "device/pool.hpp"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "device/cpu/cpu_stream.hpp"

namespace trireme::device {
namespace {

using testing::HasSubstr;

class PoolTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream(StreamMode::inlined, "main");
  std::unique_ptr<Stream> other_ = device_->make_stream(StreamMode::concurrent, "other");
};

template <class F>
void expect_contract(F callable, const char* words) {
  try {
    callable();
    FAIL() << "no ContractError about: " << words;
  } catch (const ContractError& error) {
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST_F(PoolTest, TheSameNameGetsTheSameMemoryAgain) {
  ScratchPool pool(*device_, {});
  std::byte* first = nullptr;
  {
    const Lease lease = pool.lease("x", DType::f32, 100, *stream_);
    EXPECT_EQ(lease.view().elements, 100);
    EXPECT_EQ(lease.view().dtype, DType::f32);
    first = lease.view().data;
  }
  const Lease again = pool.lease("x", DType::f32, 60, *stream_);
  EXPECT_EQ(again.view().data, first);
  EXPECT_EQ(again.view().elements, 60);
  EXPECT_EQ(pool.num_allocations(), 1U);
}

TEST_F(PoolTest, NamesAndDtypesHaveTheirOwnMemory) {
  ScratchPool pool(*device_, {});
  const Lease a = pool.lease("x", DType::f32, 8, *stream_);
  const Lease b = pool.lease("y", DType::f32, 8, *stream_);
  const Lease c = pool.lease("x", DType::bf16, 8, *stream_);
  EXPECT_NE(a.view().data, b.view().data);
  EXPECT_NE(a.view().data, c.view().data);
  EXPECT_NE(b.view().data, c.view().data);
  EXPECT_EQ(pool.num_allocations(), 3U);
}

TEST_F(PoolTest, ASecondLeaseAtOnceIsABug) {
  ScratchPool pool(*device_, {});
  std::optional<Lease> lease(pool.lease("x", DType::f32, 8, *stream_));
  expect_contract([&] { (void)pool.lease("x", DType::f32, 8, *stream_); }, "'x' is leased twice");
  Lease moved = std::move(*lease);
  lease.reset();  // the moved-from lease returns nothing
  expect_contract([&] { (void)pool.lease("x", DType::f32, 8, *stream_); }, "'x' is leased twice");
}

TEST_F(PoolTest, OneNameOnTwoStreamsIsABug) {
  ScratchPool pool(*device_, {});
  { const Lease lease = pool.lease("x", DType::f32, 8, *stream_); }
  expect_contract([&] { (void)pool.lease("x", DType::f32, 8, *other_); }, "two streams");
}

TEST_F(PoolTest, ANegativeSizeIsABugAndNothingIsALease) {
  ScratchPool pool(*device_, {});
  expect_contract([&] { (void)pool.lease("x", DType::f32, -1, *stream_); }, "-1 elements");
  const Lease nothing = pool.lease("y", DType::f32, 0, *stream_);
  EXPECT_TRUE(nothing.view().empty());
  EXPECT_EQ(pool.num_allocations(), 0U);
}

TEST_F(PoolTest, GrowsGeometricallyInWarmUpAndNeverAfterIt) {
  ScratchPool pool(*device_, {});
  for (std::int64_t elements = 1024; elements <= 1024 * 1024; elements += 1024)
    (void)pool.lease("x", DType::f32, elements, *stream_);
  EXPECT_LE(pool.num_allocations(), 20U);
  EXPECT_GE(pool.allocated_bytes(), std::size_t{4} << 20U);
  const auto allocations = pool.num_allocations();
  pool.freeze();
  for (int step = 0; step < 10; ++step) (void)pool.lease("x", DType::f32, 1024 * 1024, *stream_);
  EXPECT_EQ(pool.num_allocations(), allocations);
  expect_contract([&] { (void)pool.lease("x", DType::f32, 4 << 20, *stream_); }, "after warm-up");
  expect_contract([&] { (void)pool.lease("new", DType::f32, 1, *stream_); }, "after warm-up");
}

TEST_F(PoolTest, GrowsByTheFactorAskedFor) {
  for (const double factor : {1.25, growth_factor, 2.0}) {
    ScratchPool pool(*device_, {.growth = factor});
    (void)pool.lease("x", DType::u8, 1 << 20, *stream_);
    (void)pool.lease("x", DType::u8, (1 << 20) + 1, *stream_);
    EXPECT_EQ(pool.allocated_bytes(), static_cast<std::size_t>(factor * (1 << 20)));
    (void)pool.lease("x", DType::u8, 1 << 23, *stream_);  // more than the growth factor gives
    EXPECT_EQ(pool.allocated_bytes(), std::size_t{1} << 23U);
  }
}

TEST_F(PoolTest, ReportsTheHighWaterOfEachName) {
  ScratchPool pool(*device_, {});
  (void)pool.lease("x", DType::f32, 100, *stream_);
  (void)pool.lease("x", DType::f32, 50, *stream_);
  (void)pool.lease("y", DType::bf16, 7, *stream_);
  const auto usage = pool.usage();
  ASSERT_EQ(usage.size(), 2U);
  EXPECT_EQ(usage[0].name, "x");
  EXPECT_EQ(usage[0].high_water_bytes, 400U);
  EXPECT_EQ(usage[1].name, "y");
  EXPECT_EQ(usage[1].high_water_bytes, 14U);
}

TEST_F(PoolTest, PoisonIsNanInEveryFloatingDtype) {
  ScratchPool pool(*device_, {.pooled = true, .poison = true});
  for (int round = 0; round < 2; ++round) {
    const Lease f32 = pool.lease("x", DType::f32, 33, *stream_);
    const Lease bf16 = pool.lease("y", DType::bf16, 33, *stream_);
    const Lease f64 = pool.lease("z", DType::f64, 33, *other_);
    other_->synchronize();
    for (std::int64_t i = 0; i < 33; ++i) {
      EXPECT_TRUE(std::isnan(f32.view().as<float>()[i]));
      EXPECT_TRUE(std::isnan(static_cast<float>(bf16.view().as<Bf16>()[i])));
      EXPECT_TRUE(std::isnan(f64.view().as<double>()[i]));
      f32.view().as<float>()[i] = 1;  // and again on the next lease
    }
  }
}

TEST_F(PoolTest, WithoutThePoolEveryLeaseAllocatesAndGivesBack) {
  ScratchPool pool(*device_, {.pooled = false, .poison = false});
  pool.freeze();  // freezing only limits the growth of the pool
  for (std::uint64_t i = 1; i <= 5; ++i) {
    {
      const Lease lease = pool.lease("x", DType::f32, 1000, *stream_);
      EXPECT_EQ(lease.view().as<float>()[999], 0.0F);
      lease.view().as<float>()[999] = 1;
      EXPECT_EQ(pool.allocated_bytes(), 4000U);
    }
    EXPECT_EQ(pool.num_allocations(), i);
    EXPECT_EQ(pool.allocated_bytes(), 0U);
  }
}

/// Queues a long job on a leased block and releases the lease while the job is running.
class BusyBlock {
 public:
  BusyBlock(ScratchPool& pool, Stream& stream) : stream_(stream) {
    const Lease lease = pool.lease("x", DType::f32, elements, stream);
    float* data = lease.view().as<float>();
    std::int64_t* sum = &sum_;
    cpu::stream_of(stream).run([data] {
      for (std::int64_t i = 0; i < elements; ++i) data[i] = 1;
    });
    cpu::stream_of(stream).run([data, sum] {
      for (std::int64_t i = 0; i < elements; ++i) *sum += data[i] == 1;
    });
  }
  std::int64_t sum() {
    stream_.synchronize();
    return sum_;
  }
  static constexpr std::int64_t elements = 1 << 20;

 private:
  Stream& stream_;
  std::int64_t sum_ = 0;
};

TEST_F(PoolTest, GrowingWaitsForTheTasksOnTheOldMemory) {
  ScratchPool pool(*device_, {});
  BusyBlock busy(pool, *other_);
  const Lease bigger = pool.lease("x", DType::f32, 8 * BusyBlock::elements, *other_);
  EXPECT_EQ(busy.sum(), BusyBlock::elements);
}

TEST_F(PoolTest, GivingBackWithoutThePoolWaitsForTheTasks) {
  ScratchPool pool(*device_, {.pooled = false, .poison = false});
  BusyBlock busy(pool, *other_);
  EXPECT_EQ(pool.allocated_bytes(), 0U);
  EXPECT_EQ(busy.sum(), BusyBlock::elements);
}

TEST_F(PoolTest, AFailedStreamStillGetsItsLeaseBack) {
  ScratchPool pool(*device_, {.pooled = false, .poison = false});
  {
    const Lease lease = pool.lease("x", DType::f32, 8, *other_);
    cpu::stream_of(*other_).run([] { throw std::runtime_error("gone"); });
  }
  EXPECT_EQ(pool.allocated_bytes(), 0U);
  EXPECT_THROW(other_->synchronize(), std::runtime_error);
}

}  // namespace
}  // namespace trireme::device
