// SPDX-License-Identifier: Apache-2.0
// Steps that are enqueued before the outcome of the previous one is read.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "session/saver.hpp"
#include "session/session.hpp"
#include "session/small_job.hpp"

#include "support/gpu.hpp"

namespace trireme::session {
namespace {

Requests nothing_asked() {
  return {};
}

class LateOutcomes : public ::testing::TestWithParam<DeviceChoice> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceChoice::cuda)
      TRIREME_NEEDS_GPU();
    job_.run.device = GetParam();
    job_.batch = {.sequences = 4, .micro_sequences = 2};
  }

  /// A session with its initial parameters.
  std::unique_ptr<Session> make() {
    Log log(false, "test");
    if (!data_)
      data_.emplace(open_data(job_, "unused", *world_, log));
    auto session = std::make_unique<Session>(job_, *data_, *world_);
    Saver(*session, *world_).initialize();
    return session;
  }
  static std::vector<float> masters(Session& session) {
    session.engine.wait_for_parameters();
    std::vector<float> all;
    for (const optim::StatePiece& piece : session.optimizer.state()) {
      const std::size_t begin = all.size();
      all.resize(begin + static_cast<std::size_t>(piece.elements()));
      session.device->copy(view_of(all.data() + begin, piece.elements()), piece.master(),
                           *session.compute_stream);
    }
    session.compute_stream->synchronize();
    return all;
  }

  const std::unique_ptr<comm::World> world_ = comm::make_self_world();
  Job job_ = small_job();
  std::optional<batches::Split> data_;
};

TEST_P(LateOutcomes, EqualThoseThatAreReadAtOnce) {
  constexpr std::int64_t steps = 6;
  const auto prompt = make(), late = make();
  std::vector<StepOutcome> outcomes;
  for (std::int64_t step = 1; step <= steps; ++step) {
    late->enqueue(step, nothing_asked);
    if (step > 1)
      outcomes.push_back(late->outcome(step - 1));
  }
  outcomes.push_back(late->outcome(steps));
  // A GPU measures fp32 milliseconds from an event that is at most two seconds old.
  const double exact = GetParam() == DeviceChoice::cuda ? 1e-6 : 0;
  double end = 0;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const StepOutcome& got = outcomes[static_cast<std::size_t>(step - 1)];
    const StepOutcome expected = prompt->step(step, nothing_asked);
    EXPECT_EQ(got.loss, expected.loss);
    EXPECT_EQ(got.grad_norm, expected.grad_norm);
    EXPECT_EQ(got.learning_rate, expected.learning_rate);
    EXPECT_EQ(got.tokens, expected.tokens);
    // Each step has its own times, and the steps do not overlap.
    EXPECT_GT(got.seconds, 0);
    EXPECT_GE(got.began, end - exact);
    EXPECT_GE(got.optimizer_began, got.began - exact);
    end = got.began + got.seconds;
    EXPECT_LE(got.optimizer_began, end + exact);
  }
  EXPECT_EQ(masters(*late), masters(*prompt));
}

TEST_P(LateOutcomes, NameTheStepThatWasNotFinite) {
  const auto session = make();
  session->step(1, nothing_asked);
  const View master = session->optimizer.state()[0].master();
  float nan[] = {std::numeric_limits<float>::quiet_NaN()};
  const View first = session->engine.parameter(session->optimizer.state()[0].parameter);
  session->engine.wait_for_parameters();
  session->device->copy(first.slice(0, 1), view_of(nan, 1), *session->compute_stream);
  session->compute_stream->synchronize();
  ASSERT_EQ(first.data, master.data) << "in fp32 the master is the parameter";
  const auto before = masters(*session);
  session->enqueue(2, nothing_asked);
  session->enqueue(3, nothing_asked);
  try {
    session->outcome(2);
    FAIL() << "a NaN went through";
  } catch (const UserError& mistake) {
    EXPECT_NE(std::string(mistake.what()).find("gradient of step 2 is not finite"),
              std::string::npos)
        << mistake.what();
  }
  const auto after = masters(*session);
  EXPECT_TRUE(std::equal(after.begin() + 1, after.end(), before.begin() + 1));
}

INSTANTIATE_TEST_SUITE_P(Devices,
                         LateOutcomes,
                         ::testing::Values(DeviceChoice::cpu, DeviceChoice::cuda),
                         [](const auto& made) { return std::string(word(made.param)); });

}  // namespace
}  // namespace trireme::session
