// SPDX-License-Identifier: Apache-2.0
// The number of submissions of a step to its GPU, counted by the emulated one: graphs must reduce
// it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

#include "emulated_gpu/queue.hpp"
#include "session/session.hpp"
#include "session/small_job.hpp"
#include "support/gpu.hpp"

namespace trireme::session {
namespace {

/// The submissions of each of six steps with three micro-steps.
std::vector<std::uint64_t> submissions(bool graphs) {
  Job job = small_job();
  job.shape = {.layers = 2, .heads = 1, .channels = 8, .context = 8, .vocabulary = 16};
  job.batch = {.sequences = 3, .micro_sequences = 1};
  job.run.device = DeviceChoice::cuda;
  job.gpu.graphs.value = graphs;
  const auto world = comm::make_self_world();
  Log log(false, "test");
  const auto data = open_data(job, "unused", *world, log);
  Session session(job, data, *world);
  std::vector<std::uint64_t> counts;
  for (std::int64_t step = 1; step <= 6; ++step) {
    const std::uint64_t before = emulated::num_submissions();
    session.step(step, [] { return Requests{}; });
    counts.push_back(emulated::num_submissions() - before);
  }
  return counts;
}

TEST(Submissions, AreFewerWhereMicroStepsAreGraphs) {
  TRIREME_NEEDS_GPU();
  const auto plain = submissions(false), graphed = submissions(true);
  EXPECT_EQ(graphed.front(), plain.front()) << "the first step is not captured";
  // With an odd number of micro-steps, step 3 begins with the other batch slot; from step 4 on
  // nothing is recorded.
  for (std::size_t step = 3; step < 6; ++step) {
    // The remaining submissions are those of the optimizer, and of the search for gradients that
    // are not finite.
    EXPECT_LT(2 * graphed[step], plain[step]) << "step " << step + 1;
    EXPECT_EQ(graphed[step], graphed[3]);
    EXPECT_EQ(plain[step], plain[3]);
  }
  std::printf("submissions per step: %llu, as graphs %llu\n",
              static_cast<unsigned long long>(plain.back()),
              static_cast<unsigned long long>(graphed.back()));
}

}  // namespace
}  // namespace trireme::session
