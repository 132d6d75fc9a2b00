// SPDX-License-Identifier: Apache-2.0
// Engine and optimizer over MPI: with and without shards and overlap, results must agree to the bit
// on every rank.
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "comm/control/world.hpp"

#include "optim/rule.hpp"
#include "optim/training.hpp"

namespace trireme::optim {
namespace {

using namespace trireme::testing;

TrainingResult train(const TrainingSetting& setting,
                     comm::Transport transport = comm::Transport::automatic) {
  const auto world = comm::make_mpi_world();
  const auto device = device::make_cpu_device(1);
  const auto compute = device->make_stream(device::StreamMode::inlined, "compute");
  const auto communicator =
      comm::make_communicator(transport, setting.parallel.reduction, *world, *device,
                              {.replicas = {world->size(), setting.replicas}});
  Training training(setting, *world, *communicator, *device, *compute);
  return training.run();
}

void expect_equal(const TrainingResult& a, const TrainingResult& b) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  EXPECT_EQ(0, std::memcmp(a.parameters.data(), b.parameters.data(),
                           a.parameters.size() * sizeof(float)));
  EXPECT_EQ(a.grad_norms, b.grad_norms);
  EXPECT_EQ(a.layer_norms, b.layer_norms);
}

class AdamWOver : public ::testing::TestWithParam<comm::Transport> {};

TEST_P(AdamWOver, GivesTheSameBitsShardedOrWholeWithEverySwitch) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TrainingSetting setting;
    setting.dtype = dtype;
    setting.parallel.reduction = comm::Reduction::ordered;
    setting.parallel.gradient_dtype =
        dtype == DType::f32 ? reduce::GradientDType::fp32 : reduce::GradientDType::bf16;
    const auto reference = train(setting, comm::Transport::mpi);
    for (int bits = 0; bits < 24; ++bits) {
      setting.parallel.shard = EnumNames<layout::Shard>::table[bits / 8].first;
      setting.parallel.overlap_gradients = (bits & 1) != 0;
      setting.parallel.overlap_parameters = (bits & 2) != 0;
      setting.parallel.cached_shards = (bits & 4) != 0;
      setting.parallel.bucket_elements.value = bits % 3 == 0 ? 1 : bits % 3 == 1 ? 350 : 40'000;
      SCOPED_TRACE(bits);
      expect_equal(train(setting, GetParam()), reference);
    }
  }
}

/// Neither do replicas (parallel.replicate) change a bit.
TEST_P(AdamWOver, GivesTheSameBitsWithReplicas) {
  const int ranks = comm::make_mpi_world()->size();
  for (int replicas = 2; replicas < ranks; ++replicas)
    for (const comm::Reduction reduction : {comm::Reduction::ordered, comm::Reduction::tree}) {
      if (ranks % replicas != 0)
        continue;
      TrainingSetting setting;
      setting.parallel.reduction = reduction;
      setting.parallel.logical_shards.value =
          static_cast<std::int64_t>(std::bit_ceil(static_cast<unsigned>(ranks)));
      setting.parallel.shard = layout::Shard::none;
      const auto reference = train(setting, comm::Transport::mpi);
      setting.replicas = replicas;
      for (const int bits : {0, 3, 7, 8, 13, 15, 16, 21, 23}) {
        setting.parallel.shard = EnumNames<layout::Shard>::table[1 + bits / 8].first;
        if (reduction == comm::Reduction::tree && bits >= 8)
          break;
        setting.parallel.overlap_gradients = (bits & 1) != 0;
        setting.parallel.overlap_parameters = (bits & 2) != 0;
        setting.parallel.cached_shards = (bits & 4) != 0;
        setting.parallel.padding = bits % 2 == 0 ? layout::Padding::none : layout::Padding::aligned;
        setting.parallel.bucket_elements.value = bits % 3 == 0 ? 1 : bits % 3 == 1 ? 350 : 40'000;
        SCOPED_TRACE(fmt::format("{} replicas, {}, {}", replicas, word(reduction), bits));
        expect_equal(train(setting, GetParam()), reference);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(,
                         AdamWOver,
                         ::testing::Values(comm::Transport::mpi,
                                           comm::Transport::shared_memory,
                                           comm::Transport::hierarchical),
                         [](const auto& choice) { return std::string(word(choice.param)); });

TEST(AdamWOverMpi, LeavesTheSameParametersOnEveryRank) {
  TrainingSetting setting;
  setting.parallel.bucket_elements.value = 350;
  const auto result = train(setting);
  const auto world = comm::make_mpi_world();
  const std::string mine(reinterpret_cast<const char*>(result.parameters.data()),
                         result.parameters.size() * sizeof(float));
  for (const std::string& other : world->gather_all(mine)) EXPECT_EQ(other, mine);
}

}  // namespace
}  // namespace trireme::optim
