// SPDX-License-Identifier: Apache-2.0
// Engine and optimizer over NCCL, on two ranks that share a GPU: a sum of two terms has only one
// order, so every switch must give the same bits.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/control/mpi_world.hpp"

#include "optim/training.hpp"

#include "support/gpu.hpp"
#include "support/shared_gpu.hpp"

namespace trireme::optim {
namespace {

using namespace trireme::testing;

TrainingResult train(comm::World& world, const TrainingSetting& setting) {
  const auto device = device::make_cuda_device(0);
  const auto compute = device->make_stream(device::StreamMode::inlined, "compute");
  const auto communicator = comm::make_communicator(comm::Transport::nccl, comm::Reduction::sum,
                                                    world, *device, {.most_blocks = 2});
  Training training(setting, world, *communicator, *device, *compute);
  return training.run();
}

TEST(AdamWOverNccl, GivesTheSameBitsShardedOrWholeWithEverySwitch) {
  TRIREME_NEEDS_GPU();
  comm::MpiWorld world;
  world.set_deadline(60);
  test::pretend_to_be_on_a_host_of_ones_own(world.rank());
  TrainingSetting setting;
  setting.steps = 3;
  const auto reference = train(world, setting);
  const std::string mine(reinterpret_cast<const char*>(reference.parameters.data()),
                         reference.parameters.size() * sizeof(float));
  for (const std::string& other : world.gather_all(mine)) EXPECT_EQ(other, mine);
  for (int bits = 0; bits < 8; ++bits) {
    SCOPED_TRACE(bits);
    setting.parallel.shard = (bits & 1) != 0 ? layout::Shard::optimizer : layout::Shard::none;
    setting.parallel.overlap_gradients = (bits & 2) != 0;
    setting.parallel.overlap_parameters = (bits & 4) != 0;
    setting.parallel.register_buffers = (bits & 4) == 0;
    setting.parallel.bucket_elements.value = bits % 3 == 0 ? 1'000 : 40'000;
    const auto result = train(world, setting);
    EXPECT_EQ(result.grad_norms, reference.grad_norms);
    EXPECT_EQ(result.layer_norms, reference.layer_norms);
    EXPECT_EQ(result.parameters, reference.parameters);
  }
}

TEST(MuonOverNccl, GivesTheSameBitsShardedOrWhole) {
  TRIREME_NEEDS_GPU();
  comm::MpiWorld world;
  world.set_deadline(60);
  test::pretend_to_be_on_a_host_of_ones_own(world.rank());
  for (const FloatDType products : {FloatDType::fp32, FloatDType::bf16}) {
    TrainingSetting setting;
    setting.kind = Kind::muon;
    setting.table = matrix_table();
    setting.product_dtype = products;
    setting.steps = 3;
    setting.parallel.shard = layout::Shard::none;
    const auto reference = train(world, setting);
    for (const auto& [shard, name] : EnumNames<layout::Shard>::table)
      for (const std::int64_t elements : {1, 40'000}) {
        SCOPED_TRACE(::testing::Message() << name << ", buckets of " << elements);
        setting.parallel.shard = shard;
        setting.parallel.bucket_elements.value = elements;
        const auto result = train(world, setting);
        EXPECT_EQ(result.grad_norms, reference.grad_norms);
        EXPECT_EQ(result.layer_norms, reference.layer_norms);
        EXPECT_EQ(result.parameters, reference.parameters);
      }
  }
}

}  // namespace
}  // namespace trireme::optim
