// SPDX-License-Identifier: Apache-2.0
// Muon over MPI: matrices that are sent to their owners give the same bits as matrices that
// are orthogonalized in place, with every layout, switch and transport.
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <omp.h>

#include "comm/communicator.hpp"
#include "comm/control/world.hpp"

#include "optim/matrices.hpp"
#include "optim/rule.hpp"
#include "optim/training.hpp"

namespace trireme::optim {
namespace {

using namespace trireme::testing;

TrainingSetting muon_setting() {
  TrainingSetting setting;
  setting.kind = Kind::muon;
  setting.table = matrix_table();
  setting.parallel.shard = layout::Shard::none;
  setting.parallel.reduction = comm::Reduction::ordered;
  setting.parallel.bucket_elements.value = 700;
  return setting;
}

TrainingResult train_muon(const TrainingSetting& setting, comm::Transport transport) {
  omp_set_num_threads(1);  // ranks share the cores
  const auto world = comm::make_mpi_world();
  const auto device = device::make_cpu_device(1);
  const auto compute = device->make_stream(device::StreamMode::inlined, "compute");
  const auto communicator =
      comm::make_communicator(transport, setting.parallel.reduction, *world, *device,
                              {.replicas = {world->size(), setting.replicas}});
  Training training(setting, *world, *communicator, *device, *compute);
  const auto work = matrix_work(training.plan(), setting.optimizer(), setting.parallel.sharded());
  EXPECT_EQ(static_cast<std::int64_t>(training.optimizer().matrix_bytes()), work->bytes());
  EXPECT_EQ(work->distributed, setting.parallel.sharded() && world->size() > setting.replicas);
  std::int64_t second[] = {training.optimizer().state_bytes()[2]};
  world->max(second);
  EXPECT_EQ(second[0], layout::most_slot_bytes(training.plan(), state_slots(setting.optimizer())[2],
                                               setting.parallel.sharded()));
  return training.run();
}

class MuonOver : public ::testing::TestWithParam<comm::Transport> {};

TEST_P(MuonOver, GivesTheSameBitsShardedOrWholeWithEverySwitch) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TrainingSetting setting = muon_setting();
    setting.dtype = dtype;
    setting.moment_dtype = dtype == DType::bf16 ? FloatDType::bf16 : FloatDType::fp32;
    setting.steps = 2;
    const auto reference = train_muon(setting, comm::Transport::mpi);
    const int ranks = comm::make_mpi_world()->size();
    for (const int bits : {0, 1, 2, 3, 5, 8, 10, 11, 13, 15}) {
      setting.parallel.shard = EnumNames<layout::Shard>::table[bits % 3].first;
      setting.parallel.overlap_gradients = (bits & 2) != 0;
      setting.parallel.overlap_parameters = (bits & 4) != 0;
      setting.parallel.cached_shards = (bits & 8) != 0;
      setting.parallel.bucket_elements.value = bits % 3 == 0 ? 1 : bits % 3 == 1 ? 700 : 40'000;
      setting.parallel.padding = bits % 4 == 1 ? layout::Padding::none : layout::Padding::aligned;
      setting.replicas =
          ranks % 2 == 0 && ranks > 2 && setting.parallel.sharded() && bits > 7 ? 2 : 1;
      SCOPED_TRACE(bits);
      const auto result = train_muon(setting, GetParam());
      ASSERT_EQ(result.parameters, reference.parameters);
      ASSERT_EQ(result.grad_norms, reference.grad_norms);
      ASSERT_EQ(result.layer_norms, reference.layer_norms);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(,
                         MuonOver,
                         ::testing::Values(comm::Transport::mpi,
                                           comm::Transport::shared_memory,
                                           comm::Transport::hierarchical),
                         [](const auto& choice) { return std::string(word(choice.param)); });

/// In such a step no rank sends matrices; in the next step all ranks do.
TEST(MuonOverMpi, AStepThatIsNotFiniteOnOneRankIsSkippedByAll) {
  TrainingSetting setting = muon_setting();
  setting.parallel.shard = layout::Shard::optimizer;
  setting.on_non_finite = OnNonFinite::skip;
  omp_set_num_threads(1);
  const auto world = comm::make_mpi_world();
  const auto device = device::make_cpu_device(1);
  const auto compute = device->make_stream(device::StreamMode::inlined, "compute");
  const auto communicator = comm::make_communicator(comm::Transport::automatic,
                                                    setting.parallel.reduction, *world, *device);
  Training training(setting, *world, *communicator, *device, *compute);
  training.backward(1);
  ASSERT_EQ(training.update(1).not_finite, "");
  const auto before = training.parameters();
  if (world->rank() == 0)
    training.poison(1, 17, std::numeric_limits<float>::infinity());
  training.backward(2);
  EXPECT_NE(training.update(2).not_finite, "");
  EXPECT_EQ(training.parameters(), before);
  training.poison(1, 17, 0.0F);
  training.backward(3);
  EXPECT_EQ(training.update(3).not_finite, "");
  EXPECT_NE(training.parameters(), before);
  world->barrier();
}

/// With the same gradients on every rank, whose mean is exact on 1, 2 and 4 ranks, the result does
/// not depend on the number of ranks.
TEST(MuonOverMpi, GivesTheSameBitsAsOneRank) {
  TrainingSetting setting = muon_setting();
  setting.parallel.shard = layout::Shard::optimizer;
  const auto world = comm::make_mpi_world();
  if ((world->size() & (world->size() - 1)) != 0)
    GTEST_SKIP() << "a mean over " << world->size() << " ranks is rounded";
  omp_set_num_threads(1);
  const auto device = device::make_cpu_device(1);
  const auto compute = device->make_stream(device::StreamMode::inlined, "compute");
  const auto train_equally = [&](comm::World& ranks, comm::Transport transport) {
    const auto communicator =
        comm::make_communicator(transport, setting.parallel.reduction, ranks, *device);
    Training training(setting, ranks, *communicator, *device, *compute);
    training.be_like_rank(0);
    return training.run();
  };
  const auto alone = comm::make_self_world();
  for (const auto& [type, text] : EnumNames<FloatDType>::table) {
    setting.moment_dtype = type;
    const auto expected = train_equally(*alone, comm::Transport::self);
    const auto together = train_equally(*world, comm::Transport::automatic);
    EXPECT_EQ(together.parameters, expected.parameters) << text;
  }
  world->barrier();
}

}  // namespace
}  // namespace trireme::optim
