// SPDX-License-Identifier: Apache-2.0
// Tests the contract of device.hpp on a GPU, and what holds without one.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "device/device.hpp"
#include "device/pool.hpp"

#include "support/gpu.hpp"

namespace trireme::device {
namespace {

TEST(WithoutGpu, GivesTheReasonAndThrows) {
  const CudaCensus census = count_cuda_devices();
  EXPECT_EQ(census.count == 0, !census.why_none.empty());
  if (census.count == 0) {
    EXPECT_THROW((void)make_cuda_device(0), DeviceError);
  }
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    TRIREME_NEEDS_GPU();
    device_ = make_cuda_device(0);
    compute_ = device_->make_stream(StreamMode::inlined, "compute");
    other_ = device_->make_stream(StreamMode::concurrent, "other");
  }

  std::vector<float> read(ConstView view) {
    std::vector<float> host(static_cast<std::size_t>(view.elements));
    device_->copy(view_of(host.data(), view.elements), view, *compute_);
    compute_->synchronize();
    return host;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> compute_, other_;
};

TEST_F(OnGpu, DescribesItself) {
  EXPECT_EQ(device_->kind(), Kind::cuda);
  EXPECT_NE(device_->description().find("GPU-"), std::string::npos) << device_->description();
  const MemoryInfo memory = device_->memory();
  EXPECT_GT(memory.free_bytes, 0U);
  EXPECT_GE(memory.total_bytes, memory.free_bytes);
}

TEST_F(OnGpu, HasALinkToEveryOtherGpuInBothDirections) {
  EXPECT_EQ(device_->description().find(device_->uuid()),
            device_->description().size() - device_->uuid().size());
  const auto links = links_between_gpus();
  const auto count = static_cast<std::size_t>(count_cuda_devices().count);
  ASSERT_EQ(links.size(), count * (count - 1));
  std::size_t from_here = 0;
  for (const GpuLink& link : links) {
    EXPECT_NE(link.from, link.to);
    from_here += link.from == device_->uuid() ? 1 : 0;
    const auto back = std::ranges::find_if(links, [&](const GpuLink& other) {
      return other.from == link.to && other.to == link.from;
    });
    ASSERT_NE(back, links.end());
    EXPECT_EQ(back->peer_access, link.peer_access);
  }
  EXPECT_EQ(from_here, count - 1);
}

TEST_F(OnGpu, GivesZeroedAlignedMemory) {
  for (const std::size_t bytes : {4U, 4096U, 1U << 22U}) {
    const Buffer buffer = device_->allocate(bytes, "test");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 128, 0U);
    const auto values = read(buffer.view(DType::f32));
    EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v == 0; }));
  }
  EXPECT_EQ(device_->allocate(0, "nothing").bytes(), 0U);
}

TEST_F(OnGpu, NamesWhatDidNotFit) {
  try {
    const Buffer buffer = device_->allocate(device_->memory().total_bytes * 4, "the moon");
    FAIL() << "got it";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("the moon"), std::string::npos) << error.what();
  }
  EXPECT_GT(device_->allocate(1024, "less").bytes(), 0U);  // later calls still work
}

TEST_F(OnGpu, CopiesBothWaysAndWithin) {
  std::vector<float> host(100'003);
  std::iota(host.begin(), host.end(), 1.0F);
  const auto n = static_cast<std::int64_t>(host.size());
  const Buffer a = device_->allocate(host.size() * sizeof(float), "a");
  const Buffer b = device_->allocate(host.size() * sizeof(float), "b");
  device_->copy(a.view(DType::f32), view_of(host.data(), n), *compute_);
  device_->copy(b.view(DType::f32), a.view(DType::f32), *compute_);
  EXPECT_EQ(read(b.view(DType::f32)), host);
  device_->fill_zero(b.view(DType::f32).slice(1, n - 1), *compute_);
  EXPECT_EQ(read(b.view(DType::f32))[0], 1);
  EXPECT_EQ(read(b.view(DType::f32)).back(), 0);
}

TEST_F(OnGpu, SharesMemoryWithTheHost) {
  const Buffer shared = device_->allocate_shared_with_host(64, "shared");
  const Buffer there = device_->allocate(64, "there");
  auto* host = shared.view(DType::f32).as<float>();
  EXPECT_EQ(host[15], 0);
  host[15] = 7;
  device_->copy(there.view(DType::f32), shared.view(DType::f32), *compute_);
  device_->fill_zero(shared.view(DType::f32), *compute_);
  device_->copy(shared.view(DType::f32), there.view(DType::f32), *compute_);
  compute_->synchronize();
  EXPECT_EQ(host[15], 7);
}

TEST_F(OnGpu, OrdersStreamsByEvents) {
  constexpr std::int64_t n = 1 << 24;
  const Buffer from = device_->allocate(n * sizeof(float), "from");
  const Buffer to = device_->allocate(n * sizeof(float), "to");
  const std::vector<float> ones(static_cast<std::size_t>(n), 1.0F);
  const auto ready = device_->make_event();
  EXPECT_TRUE(ready->reached());  // never recorded
  for (int round = 0; round < 5; ++round) {
    device_->fill_zero(to.view(DType::f32), *other_);
    other_->synchronize();
    device_->copy(from.view(DType::f32), view_of(ones.data(), n), *compute_);
    compute_->record(*ready);
    other_->wait(*ready);
    device_->copy(to.view(DType::f32), from.view(DType::f32), *other_);
    other_->synchronize();
    EXPECT_EQ(read(to.view(DType::f32)).back(), 1);
    device_->fill_zero(from.view(DType::f32), *compute_);
    compute_->synchronize();
  }
}

TEST_F(OnGpu, ReportsTimeOnTheHostsClock) {
  const auto begin = device_->make_event(), end = device_->make_event();
  const Buffer memory = device_->allocate(std::size_t{1} << 26U, "memory");
  const double before = now_seconds();
  compute_->record(*begin);
  for (int i = 0; i < 100; ++i) device_->fill_zero(memory.view(DType::f32), *compute_);
  compute_->record(*end);
  compute_->synchronize();
  const double after = now_seconds();
  // The two clocks agree to within the round trip of an event.
  constexpr double slack = 1e-3;
  EXPECT_GT(begin->seconds(), before - slack);
  EXPECT_GT(end->seconds(), begin->seconds());
  EXPECT_LT(end->seconds(), after + slack);
}

TEST_F(OnGpu, OutlivesDestroyedEvents) {
  const Buffer memory = device_->allocate(std::size_t{1} << 26U, "memory");
  for (int i = 0; i < 50; ++i) {
    const auto event = device_->make_event();
    device_->fill_zero(memory.view(DType::f32), *compute_);
    compute_->record(*event);
    other_->wait(*event);
  }
  other_->synchronize();
}

TEST_F(OnGpu, RefusesTheCpusThings) {
  const auto cpu = make_cpu_device(1);
  const auto event = cpu->make_event();
  EXPECT_THROW(compute_->record(*event), ContractError);
  EXPECT_THROW(compute_->wait(*event), ContractError);
  const auto stream = cpu->make_stream(StreamMode::inlined, "cpu");
  const Buffer memory = device_->allocate(64, "memory");
  EXPECT_THROW(device_->fill_zero(memory.view(DType::f32), *stream), ContractError);
}

TEST_F(OnGpu, AGraphRunsWhatWasCapturedEachTimeItIsLaunched) {
  const Buffer host = device_->allocate_shared_with_host(3 * sizeof(float), "from");
  const Buffer memory = device_->allocate(3 * sizeof(float), "to");
  auto* const from = host.view(DType::f32).as<float>();
  compute_->begin_capture();
  device_->copy(memory.view(DType::f32), host.view(DType::f32), *compute_);
  device_->fill_zero(memory.view(DType::f32).slice(0, 1), *compute_);
  const auto graph = compute_->end_capture();
  EXPECT_EQ(read(memory.view(DType::f32)), (std::vector<float>{0, 0, 0}));
  for (const float value : {2.0F, 3.0F}) {
    std::fill_n(from, 3, value);
    graph->launch(*compute_);
    EXPECT_EQ(read(memory.view(DType::f32)), (std::vector<float>{0, value, value}));
  }
  std::fill_n(from, 3, 4.0F);
  graph->launch(*other_);
  other_->synchronize();
  EXPECT_EQ(read(memory.view(DType::f32)), (std::vector<float>{0, 4, 4}));
}

TEST_F(OnGpu, AStreamThatIsCapturedNeitherRecordsNorWaits) {
  const auto event = device_->make_event();
  EXPECT_THROW((void)compute_->end_capture(), ContractError);
  compute_->begin_capture();
  EXPECT_THROW(compute_->begin_capture(), ContractError);
  EXPECT_THROW(compute_->record(*event), ContractError);
  EXPECT_THROW(compute_->wait(*event), ContractError);
  EXPECT_THROW(compute_->synchronize(), ContractError);
  compute_->end_capture()->launch(*compute_);
  compute_->synchronize();
}

TEST_F(OnGpu, AnAllocationEndsACaptureAndNotTheStream) {
  const Buffer memory = device_->allocate(sizeof(float), "memory");
  compute_->begin_capture();
  EXPECT_THROW((void)device_->allocate(64, "too late"), DeviceError);
  EXPECT_THROW((void)compute_->end_capture(), DeviceError);
  device_->fill_zero(memory.view(DType::f32), *compute_);
  compute_->synchronize();
}

TEST_F(OnGpu, LeasesFromThePool) {
  ScratchPool pool(*device_, {});
  for (int i = 0; i < 3; ++i) {
    const Lease lease = pool.lease("scratch", DType::f32, 1000, *compute_);
    device_->fill_zero(lease.view(), *compute_);
  }
  EXPECT_EQ(pool.num_allocations(), 1U);
}

}  // namespace
}  // namespace trireme::device
