// SPDX-License-Identifier: Apache-2.0
#include "device/buffer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "device/device.hpp"

namespace trireme::device {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Counts the memory that is returned.
class CountingSource final : public MemorySource {
 public:
  Buffer make(std::size_t bytes) {
    storage_.push_back(std::make_unique<std::byte[]>(bytes));
    return {*this, storage_.back().get(), bytes};
  }
  std::vector<std::size_t> released;

 private:
  void release(std::byte*, std::size_t bytes) noexcept override { released.push_back(bytes); }
  std::vector<std::unique_ptr<std::byte[]>> storage_;
};

TEST(BufferTest, GivesItsBytesBackExactlyOnce) {
  CountingSource source;
  {
    Buffer a = source.make(8);
    Buffer b = std::move(a);
    EXPECT_EQ(a.bytes(), 0U);  // NOLINT(bugprone-use-after-move): that is the question
    EXPECT_EQ(a.data(), nullptr);
    EXPECT_EQ(b.bytes(), 8U);
    EXPECT_TRUE(source.released.empty());
  }
  EXPECT_EQ(source.released, (std::vector<std::size_t>{8}));
}

TEST(BufferTest, AssignmentReleasesTheOldBytes) {
  CountingSource source;
  Buffer a = source.make(8), b = source.make(16);
  a = std::move(b);
  EXPECT_EQ(source.released, (std::vector<std::size_t>{8}));
  EXPECT_EQ(a.bytes(), 16U);
  a = Buffer();
  EXPECT_EQ(source.released, (std::vector<std::size_t>{8, 16}));
}

TEST(BufferTest, AssigningToItselfKeepsTheBytes) {
  CountingSource source;
  Buffer a = source.make(8);
  Buffer& same = a;
  a = std::move(same);
  EXPECT_EQ(a.bytes(), 8U);
  EXPECT_TRUE(source.released.empty());
}

TEST(BufferTest, ViewsStayInside) {
  CountingSource source;
  const Buffer buffer = source.make(24);
  EXPECT_EQ(buffer.view(DType::f32).elements, 6);
  EXPECT_EQ(buffer.view(DType::bf16, 4, 10).data, buffer.data() + 4);
  EXPECT_NO_THROW((void)buffer.view(DType::f64, 24, 0));
  EXPECT_THROW((void)buffer.view(DType::f32, 4, 6), ContractError);
  EXPECT_THROW((void)buffer.view(DType::f32, 0, -1), ContractError);
  EXPECT_THROW((void)buffer.view(DType::f32, std::numeric_limits<std::size_t>::max() - 3, 1),
               ContractError);
  EXPECT_THROW((void)source.make(10).view(DType::f32), ContractError);
}

class CpuMemoryTest : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(,
                         CpuMemoryTest,
                         testing::Values(std::size_t{1},
                                         std::size_t{4096},
                                         std::size_t{5000},
                                         (std::size_t{2} << 20U) - 1,
                                         std::size_t{2} << 20U,
                                         (std::size_t{5} << 20U) + 12345));

TEST_P(CpuMemoryTest, IsZeroAlignedAndWritable) {
  const auto device = make_cpu_device(1);
  const std::size_t bytes = GetParam();
  for (int round = 0; round < 3; ++round) {  // repeated, so that used memory is returned
    const Buffer buffer = device->allocate(bytes, "test");
    ASSERT_EQ(buffer.bytes(), bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    EXPECT_EQ(address % (bytes >= (std::size_t{2} << 20U) ? std::size_t{2} << 20U : 4096), 0U);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes,
                            [](std::byte b) { return b == std::byte{0}; }));
    std::memset(buffer.data(), 0x5a, bytes);
  }
}

TEST(CpuDeviceTest, NothingIsABufferToo) {
  const auto device = make_cpu_device(1);
  const Buffer nothing = device->allocate(0, "nothing");
  EXPECT_EQ(nothing.bytes(), 0U);
  EXPECT_TRUE(nothing.view(DType::f32).empty());
}

TEST(CpuDeviceTest, LackOfMemoryNamesThePurposeAndTheSize) {
  const auto device = make_cpu_device(1);
  for (const std::size_t bytes :
       {std::size_t{1} << 62U, std::numeric_limits<std::size_t>::max() - 5}) {
    try {
      const Buffer buffer = device->allocate(bytes, "activations");
      FAIL() << "more memory than there is";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("activations"), HasSubstr(std::to_string(bytes))));
    }
  }
}

TEST(CpuDeviceTest, DescribesItself) {
  const auto device = make_cpu_device(3);
  EXPECT_EQ(device->kind(), Kind::cpu);
  EXPECT_THAT(device->description(), HasSubstr("3 threads"));
  EXPECT_GT(device->memory().total_bytes, device->memory().free_bytes);
  EXPECT_THROW((void)make_cpu_device(0), ContractError);
}

}  // namespace
}  // namespace trireme::device
