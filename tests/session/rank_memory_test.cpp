// SPDX-License-Identifier: Apache-2.0
// A limit for model.recompute: the decision of a session before it allocates anything.
#include "session/rank_memory.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/control/world.hpp"

#include "batches/dataset.hpp"

#include "session/session.hpp"
#include "session/small_job.hpp"

namespace trireme::session {
namespace {

constexpr const char* key = "model.recompute";

class RankMemory : public ::testing::Test {
 protected:
  RankMemory() {
    job_.shape.layers = 6;
    job_.run.device = DeviceChoice::cpu;
  }

  void set_limit(std::int64_t bytes) { job_.shape.recompute = model::RecomputeKey(Bytes{bytes}); }
  [[nodiscard]] std::int64_t bytes_with(model::Recompute recompute) {
    job_.shape.recompute = recompute;
    return choice().bytes;
  }
  [[nodiscard]] model::RecomputeChoice choice() {
    return decide_recompute(
        {job_, job_.shape, plan_of(job_, *world_, *device_), {DType::f32, device_->kind()}});
  }

  Job job_ = small_job();
  const std::unique_ptr<comm::World> world_ = comm::make_self_world();
  const std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  Log log_{false, "test"};
};

TEST_F(RankMemory, UnderALimitEqualsThatOfASession) {
  const std::int64_t most = bytes_with(model::Recompute::none);
  const std::int64_t least = bytes_with(model::Recompute::block);
  set_limit((least + most) / 2);
  const batches::Split data = open_data(job_, "unused", *world_, log_);
  const Session session(job_, data, *world_);
  const model::RecomputeChoice chosen = choice();
  EXPECT_EQ(session.shape.recompute, chosen.recompute);
  EXPECT_EQ(session.model.shape().recompute, chosen.recompute);
  EXPECT_NE(chosen.recompute.list(), nullptr);
  EXPECT_LE(chosen.bytes, (least + most) / 2);
  EXPECT_EQ(decided(job_, *world_, *device_, DType::f32).shape, session.shape);

  const layout::Budget budget = budget_of(job_, session.plan, {DType::f32, device::Kind::cpu});
  const nn::ActivationPlan kept = model::activation_plan(
      session.shape, DType::f32, job_.batch.micro_sequences, device::Kind::cpu);
  EXPECT_EQ(session.model.activation_bytes(), kept.bytes());
  EXPECT_EQ(chosen.bytes,
            budget.held_bytes() + static_cast<std::int64_t>(kept.bytes() + kept.scratch().bytes()));
}

TEST_F(RankMemory, ReportsATooSmallLimit) {
  const std::int64_t least = bytes_with(model::Recompute::block);
  set_limit(least);
  const batches::Split data = open_data(job_, "unused", *world_, log_);
  EXPECT_NO_THROW(Session(job_, data, *world_));
  set_limit(least - 1);
  try {
    const Session session(job_, data, *world_);
    FAIL() << "a limit that is too small was accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("error: model.recompute: "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(least) + " bytes"));
  }
}

TEST_F(RankMemory, AnExplicitChoiceIsKept) {
  job_.shape.recompute = model::Recompute::gelu;
  EXPECT_TRUE(choice().fits);
  EXPECT_EQ(decided(job_, *world_, *device_, DType::f32).shape, job_.shape);
}

}  // namespace
}  // namespace trireme::session
