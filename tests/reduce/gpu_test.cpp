// SPDX-License-Identifier: Apache-2.0
// The engine on a GPU with one rank: with every switch its results equal those of a plain loop to
// the bit.
#include "support/gpu.hpp"

#include <memory>

#include <gtest/gtest.h>

#include "reduce/steps.hpp"

namespace trireme::reduce {
namespace {

using namespace trireme::testing;

class EngineOnGpu : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    TRIREME_NEEDS_GPU();
    device_ = device::make_cuda_device(0);
    compute_ = device_->make_stream(device::StreamMode::inlined, "compute");
    communicator_ =
        comm::make_communicator(comm::Transport::self, comm::Reduction::sum, *world_, *device_);
  }

  const std::unique_ptr<comm::World> world_ = comm::make_self_world();
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<comm::Communicator> communicator_;
};

TEST_P(EngineOnGpu, TrainsAsAPlainLoopWithEverySwitch) {
  constexpr int steps = 4;
  for (const Tied tied : {Tied::first, Tied::last, Tied::alone}) {
    const auto expected = train_plainly({.tied = tied, .dtype = GetParam()}, steps, 1);
    for (Setting setting : settings_of_every_switch()) {
      setting.tied = tied;
      setting.dtype = GetParam();
      ASSERT_EQ(train(setting, steps, *communicator_, *device_, *compute_), expected)
          << setting.text();
    }
  }
}

TEST_P(EngineOnGpu, ReportsTimesInOrder) {
  const Setting setting{.dtype = GetParam()};
  const layout::Plan plan(table(), {1, setting.bucket_elements, setting.padding});
  Engine engine(plan, setting.dtype, setting.config(), *communicator_, *device_, *compute_);
  Steps steps(engine, *device_, *compute_);
  steps.initialize();
  // The time of an event on the host's clock has the accuracy of a round trip to the GPU.
  constexpr double exact = 1e-4;
  for (int step = 0; step < 3; ++step) {
    steps.run(step);
    const StepTimes told = engine.times(engine.steps_begun());
    for (const ReductionTimes& times : told.reductions) {
      EXPECT_GT(times.ready, 0.0);
      EXPECT_LE(times.ready, times.start + exact);
      EXPECT_LE(times.start, times.end + exact);
      EXPECT_GE(times.waited, -exact);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes,
                         EngineOnGpu,
                         ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& made) { return std::string(name(made.param)); });

}  // namespace
}  // namespace trireme::reduce
