// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/machine.hpp"

namespace trireme::session {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Precisions : public ::testing::Test {
 protected:
  DType choose(Precision precision, bool fast_bf16) {
    notes_.clear();
    return choose_dtype(precision, fast_bf16, *world_, &notes_);
  }
  std::unique_ptr<comm::World> world_ = comm::make_mpi_world();
  std::vector<std::string> notes_;
};

TEST_F(Precisions, AutoIsBf16WhereItIsFasterOnEveryRank) {
  EXPECT_EQ(choose(Precision::automatic, true), DType::bf16);
  EXPECT_EQ(choose(Precision::automatic, false), DType::f32);
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(Precisions, AutoIsFp32AndNamesTheRankWhoseBf16IsNoFaster) {
  if (world_->size() < 2)
    return;
  const int without = world_->size() - 1;
  EXPECT_EQ(choose(Precision::automatic, world_->rank() != without), DType::f32);
  EXPECT_THAT(notes_, ElementsAre("run.precision: auto is fp32, because bf16 is no faster "
                                  "than fp32 for rank " +
                                  std::to_string(without) + " (" + world_->host() + ")"));
}

TEST_F(Precisions, AnExplicitPrecisionIsUsed) {
  EXPECT_EQ(choose(Precision::bf16, false), DType::bf16);
  EXPECT_EQ(choose(Precision::fp32, true), DType::f32);
  EXPECT_THAT(notes_, IsEmpty());
}

TEST(Device, IsACpuOrNoneForWhatMeasuresCpus) {
  const auto world = comm::make_mpi_world();
  const device::CudaCensus none{.count = 0, .why_none = "no driver"};
  // A GPU on one rank is enough: a run would use it there.
  const device::CudaCensus some{.count = world->rank() == world->size() - 1 ? 1 : 0,
                                .why_none = {}};
  expect_cpus(*world, "it", DeviceChoice::automatic, none);
  expect_cpus(*world, "it", DeviceChoice::cpu, some);
  for (const auto& [choice, gpus] :
       {std::pair{DeviceChoice::automatic, some}, std::pair{DeviceChoice::cuda, none}})
    try {
      expect_cpus(*world, "it", choice, gpus);
      FAIL() << "no error";
    } catch (const UserError& error) {
      EXPECT_STREQ(
          error.what(),
          "error: it measures only CPUs, but this deck would use GPUs; set run.device=cpu");
    }
}

TEST(OperationOptions, AreThoseOfTheDeck) {
  Job job;
  const auto device = device::make_cpu_device(1);
  const ops::Options usual = operation_options(job, *device);
  EXPECT_EQ(usual.products.timed, ops::ProductOptions{}.timed);
  EXPECT_EQ(usual.products.fused_gelu, ops::ProductOptions{}.fused_gelu);
  EXPECT_EQ(usual.products.fused_gelu_backward, ops::ProductOptions{}.fused_gelu_backward);
  EXPECT_EQ(usual.products.blocks, ops::ProductOptions{}.blocks);
  EXPECT_EQ(usual.products.workspace_bytes, ops::ProductOptions{}.workspace_bytes);
  EXPECT_EQ(usual.attention.deterministic, ops::AttentionOptions{}.deterministic);
  job.gpu.products.timed = true;
  job.gpu.products.fused_gelu = job.gpu.attention.deterministic = false;
  job.parallel.product_blocks.value = 64;
  job.gpu.product_workspace.value = 7;
  const ops::Options given = operation_options(job, *device);
  EXPECT_TRUE(given.products.timed);
  EXPECT_FALSE(given.products.fused_gelu);
  EXPECT_EQ(given.products.blocks, 64);
  EXPECT_EQ(given.products.workspace_bytes, std::size_t{7} << 20U);
  EXPECT_FALSE(given.attention.deterministic);
}

TEST(Isolation, IsReportedWhereRanksOfAHostSeeOneGpuEach) {
  const auto world = comm::make_mpi_world();
  const std::string own = "GPU " + std::to_string(world->rank());
  EXPECT_EQ(isolation_note(*world, 1, "the GPU of all"), "");
  EXPECT_EQ(isolation_note(*world, 8, own), "");
  const std::string note = isolation_note(*world, 1, own);
  if (world->size() == 1)
    EXPECT_EQ(note, "");
  else
    EXPECT_THAT(note, ::testing::AllOf(::testing::HasSubstr("each rank on " + world->host()),
                                       ::testing::HasSubstr("--gpus-per-node")));
}

}  // namespace
}  // namespace trireme::session
