// SPDX-License-Identifier: Apache-2.0
// Engine and optimizer on a GPU with one rank, compared with the CPU.
#include "support/gpu.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "optim/training.hpp"

namespace trireme::optim {
namespace {

using namespace trireme::testing;

TrainingResult train(device::Device& device, const TrainingSetting& setting) {
  const auto world = comm::make_self_world();
  const auto compute = device.make_stream(device::StreamMode::inlined, "compute");
  const auto communicator =
      comm::make_communicator(comm::Transport::self, comm::Reduction::sum, *world, device);
  Training training(setting, *world, *communicator, device, *compute);
  return training.run();
}

class OptimizerOnGpu : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    TRIREME_NEEDS_GPU();
    gpu_ = device::make_cuda_device(0);
    cpu_ = device::make_cpu_device(1);
    setting_.dtype = GetParam();
    setting_.parallel.bucket_elements.value = 350;
  }

  std::unique_ptr<device::Device> gpu_, cpu_;
  TrainingSetting setting_;
};

TEST_P(OptimizerOnGpu, HasTheNormsOfTheCpuToTheBitAndItsParametersWithinRounding) {
  for (const auto& [shard, name] : EnumNames<layout::Shard>::table)
    for (const double clip_norm : {1.0, 0.0}) {
      SCOPED_TRACE(::testing::Message() << "shard " << name << ", clip " << clip_norm);
      setting_.parallel.shard = shard;
      setting_.clip_norm = clip_norm;
      const auto got = train(*gpu_, setting_), expected = train(*cpu_, setting_);
      EXPECT_EQ(got.grad_norms, expected.grad_norms);
      ASSERT_EQ(got.layer_norms.size(), expected.layer_norms.size());
      for (std::size_t i = 0; i < got.layer_norms.size(); ++i)
        EXPECT_NEAR(got.layer_norms[i], expected.layer_norms[i], 1e-4 * expected.layer_norms[i])
            << i;
      ASSERT_EQ(got.parameters.size(), expected.parameters.size());
      // They differ by a few fp32 roundings; in bf16 that may be one unit in the last place.
      const float allowed = GetParam() == DType::f32 ? 1e-6F : 0x1p-7F;
      for (std::size_t i = 0; i < got.parameters.size(); ++i)
        ASSERT_NEAR(got.parameters[i], expected.parameters[i],
                    allowed * (0.01F + std::abs(expected.parameters[i])))
            << i;
    }
}

TEST_P(OptimizerOnGpu, OrthogonalizesAsTheCpuDoes) {
  setting_.kind = Kind::muon;
  setting_.table = matrix_table();
  for (const auto& [shard, name] : EnumNames<layout::Shard>::table) {
    SCOPED_TRACE(::testing::Message() << "shard " << name);
    setting_.parallel.shard = shard;
    const auto got = train(*gpu_, setting_), expected = train(*cpu_, setting_);
    EXPECT_EQ(got.grad_norms[0], expected.grad_norms[0]);
    ASSERT_EQ(got.parameters.size(), expected.parameters.size());
    // The orthogonalization multiplies roundings by up to 3.4445^5 where singular values are small.
    const float allowed = GetParam() == DType::f32 ? 1e-4F : 0x1p-7F;
    for (std::size_t i = 0; i < got.parameters.size(); ++i)
      ASSERT_NEAR(got.parameters[i], expected.parameters[i],
                  allowed * (0.01F + std::abs(expected.parameters[i])))
          << i;
  }
}

TEST_P(OptimizerOnGpu, GivesTheSameBitsWithEverySwitch) {
  const auto reference = train(*gpu_, setting_);
  for (int bits = 0; bits < 8; ++bits) {
    SCOPED_TRACE(bits);
    setting_.parallel.shard = (bits & 1) != 0 ? layout::Shard::optimizer : layout::Shard::none;
    setting_.parallel.cached_shards = (bits & 2) != 0;
    setting_.parallel.bucket_elements.value = (bits & 4) != 0 ? 1 : 40'000;
    const auto result = train(*gpu_, setting_);
    EXPECT_EQ(result.grad_norms, reference.grad_norms);
    EXPECT_EQ(result.layer_norms, reference.layer_norms);
    EXPECT_EQ(result.parameters, reference.parameters);
  }
}

TEST_P(OptimizerOnGpu, NamesTheGradientThatIsNaN) {
  const auto world = comm::make_self_world();
  const auto compute = gpu_->make_stream(device::StreamMode::inlined, "compute");
  const auto communicator =
      comm::make_communicator(comm::Transport::self, comm::Reduction::sum, *world, *gpu_);
  for (const bool checks : {true, false}) {
    setting_.parallel.check_gradients = checks;
    Training training(setting_, *world, *communicator, *gpu_, *compute);
    training.poison(3, 7, std::numeric_limits<float>::quiet_NaN());
    training.backward(1);
    try {
      training.update(1);
      FAIL() << "a NaN went through";
    } catch (const UserError& mistake) {
      EXPECT_NE(std::string(mistake.what()).find("c[7]"), std::string::npos) << mistake.what();
    }
  }
}

TEST_P(OptimizerOnGpu, WritesNothingInAStepThatIsNotFiniteAndNamesItAfterTheNextOne) {
  const auto world = comm::make_self_world();
  const auto compute = gpu_->make_stream(device::StreamMode::inlined, "compute");
  const auto communicator =
      comm::make_communicator(comm::Transport::self, comm::Reduction::sum, *world, *gpu_);
  for (const bool checks : {true, false}) {
    setting_.parallel.check_gradients = checks;
    Training training(setting_, *world, *communicator, *gpu_, *compute);
    training.backward(1);
    training.update(1);
    const auto before = training.parameters();
    training.poison(3, 17, std::numeric_limits<float>::quiet_NaN());
    training.backward(2);
    training.enqueue_update(2);
    EXPECT_EQ(training.parameters(), before);
    training.poison(3, 17, 0.0F);
    training.backward(3);
    training.enqueue_update(3);
    EXPECT_NE(training.parameters(), before);
    try {
      training.optimizer().result(2);
      FAIL() << "a NaN went through";
    } catch (const UserError& mistake) {
      const std::string words = mistake.what();
      EXPECT_NE(words.find("gradient of step 2 is not finite: c[17] in bucket 0"),
                std::string::npos)
          << words;
    }
    EXPECT_GT(training.optimizer().result(3).grad_norm, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes,
                         OptimizerOnGpu,
                         ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& made) { return std::string(name(made.param)); });

}  // namespace
}  // namespace trireme::optim
