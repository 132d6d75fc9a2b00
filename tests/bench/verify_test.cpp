// SPDX-License-Identifier: Apache-2.0
// Proves that verify finds errors: each case damages a session between a step and its check.
#include "bench/verify.hpp"

#include <limits>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/small_job.hpp"

#include "bench/verify_checks.hpp"

namespace trireme::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() {
    job.run.steps = 4;
    job.data.train.synthetic = 400;
    job.batch = {2, 1};
    job.parallel.bucket_elements.value = 600;
    job.shape = {
        .layers = 1, .heads = 1, .channels = 8, .context = 8, .vocabulary = 16, .dropout = 0.1};
  }

  Verified verify_with(decltype(VerifyRequest::meddle) meddle) {
    const auto world = comm::make_self_world();
    Log log(false, "test");
    return verify(job, *world, log, {2, std::move(meddle)});
  }

  Job job = session::small_job();
};

TEST_F(VerifyTest, RunsEveryCombinationOnce) {
  std::set<std::string> seen;
  int steps = 0;
  const auto verified = verify_with([&](Session& session, const Combination& combination, auto) {
    seen.insert(combination.text());
    ++steps;
    EXPECT_EQ(session.job.memory.pool, combination.pool);
    EXPECT_EQ(session.job.parallel.shard, combination.shard);
    EXPECT_EQ(session.engine.parameters_share_slots(),
              combination.shard == layout::Shard::parameters && combination.reshard_after_forward);
    EXPECT_EQ(session.engine.cached_shards(), combination.cached_shards);
    EXPECT_EQ(session.plan.options().padding, combination.padding);
    EXPECT_EQ(session.job.parallel.reduction, comm::Reduction::ordered);
  });
  EXPECT_THAT(verified.difference, IsEmpty());
  EXPECT_EQ(verified.combinations, 694);
  EXPECT_EQ(seen.size(), 694U);
  EXPECT_EQ(steps, 694 * 2);
}

/// With one micro-step all combinations give the bits of the first one.
TEST_F(VerifyTest, NeedsNoFurtherPlainCombinationForOneMicroStep) {
  job.batch = {2, 2};
  job.parallel.reduce_every = reduce::ReduceEvery::step;  // of what is not sharded so
  const auto verified = verify_with({});
  EXPECT_THAT(verified.difference, IsEmpty());
  EXPECT_EQ(verified.combinations, 693);
}

TEST_F(VerifyTest, LeavesOutWhatATreeDoesNotGoWith) {
  job.parallel.reduction = comm::Reduction::tree;
  job.parallel.logical_shards.value = 2;
  const auto verified = verify_with({});
  EXPECT_THAT(verified.difference, IsEmpty());
  EXPECT_EQ(verified.combinations, 384);
}

TEST_F(VerifyTest, ComparesShardsOfGradientsWithSumsOfMicroSteps) {
  const auto verified = verify_with([](Session& session, const Combination& combination, auto) {
    if (combination.shard == layout::Shard::gradients)
      session.next_sample += 1;
  });
  EXPECT_THAT(verified.difference, HasSubstr("after step 2, on rank 0, the loss is "));
  EXPECT_THAT(verified.difference, HasSubstr("under     parallel.bucket_elements="));
  EXPECT_THAT(verified.difference, HasSubstr("shard=gradients parallel.reduce_every=auto"));
  EXPECT_THAT(verified.difference, HasSubstr("shard=none parallel.reduce_every=micro_step"));
  EXPECT_EQ(verified.combinations, 34);
}

TEST_F(VerifyTest, NamesCombinationStepParameterAndElement) {
  const auto verified =
      verify_with([](Session& session, const Combination& combination, std::int64_t step) {
        if (step != 2 || !combination.pool || !combination.overlap_gradients)
          return;
        for (const optim::StatePiece& piece : session.optimizer.state())
          if (session.plan.parameter(piece.parameter).name == "h.0.ln_1.weight")
            piece.master().as<float>()[5] += 1e-6F;
      });
  EXPECT_THAT(verified.difference, HasSubstr("after step 2, on rank 0, h.0.ln_1.weight[5] is "));
  EXPECT_THAT(verified.difference, HasSubstr("overlap_gradients=true"));
  EXPECT_THAT(verified.difference, HasSubstr("memory.pool=true"));
  EXPECT_EQ(verified.combinations, 10);  // bits 0 and 3
}

TEST_F(VerifyTest, SeesPaddingThatIsNotZero) {
  const auto verified = verify_with([](Session& session, const Combination&, std::int64_t) {
    owned_padding(session).back().as<float>()[0] = -0.0F;
  });
  EXPECT_THAT(verified.difference, HasSubstr("padding is no longer zero"));
  EXPECT_EQ(verified.combinations, 1);
}

TEST_F(VerifyTest, SeesAnUpdateThatTheNextStepReads) {
  const auto verified = verify_with([](Session& session, const Combination& combination, auto) {
    if (combination.shard == layout::Shard::optimizer)
      session.next_sample += 1;
  });
  EXPECT_THAT(verified.difference, HasSubstr("after step 2, on rank 0, the loss is "));
  EXPECT_EQ(verified.combinations, 17);
}

TEST_F(VerifyTest, RefusesADeckThatDivergesInItsFirstCombination) {
  try {
    verify_with([](Session& session, const Combination&, auto) {
      session.engine.parameter(ParameterIndex{0}).as<float>()[0] =
          std::numeric_limits<float>::quiet_NaN();
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UserError& refused) {
    EXPECT_THAT(refused.what(), HasSubstr("in step 2, the gradient of step 2 is not finite"));
    EXPECT_THAT(refused.what(), HasSubstr("There is nothing to compare with"));
  }
}

TEST_F(VerifyTest, NamesTheCombinationWhenSomethingThrows) {
  ::testing::internal::CaptureStdout();
  EXPECT_THROW(verify_with([](Session&, const Combination& combination, auto) {
                 TRIREME_EXPECT(combination.shard == layout::Shard::none, "made up");
               }),
               ContractError);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("while verifying parallel.bucket_elements="));
}

TEST_F(VerifyTest, RefusesAGpu) {
  job.run.device = session::DeviceChoice::cuda;
  EXPECT_THROW(verify_with({}), UserError);
}

}  // namespace
}  // namespace trireme::bench
