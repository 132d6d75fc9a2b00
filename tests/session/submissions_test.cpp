// SPDX-License-Identifier: Apache-2.0
// The number of submissions of a step to its GPU, counted by the emulated one: graphs must reduce
// it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

#include "session/rank_memory.hpp"
#include "session/session.hpp"
#include "session/small_job.hpp"

#include "emulated_gpu/queue.hpp"
#include "support/gpu.hpp"

namespace trireme::session {
namespace {

struct Counted {
  std::vector<std::uint64_t> submissions{};  ///< of each of six steps
  std::int64_t recordings = 0;
};

Job job_with(std::int64_t micro_steps) {
  Job job = small_job();
  job.shape = {.layers = 2, .heads = 1, .channels = 8, .context = 8, .vocabulary = 16};
  job.batch = {.sequences = micro_steps, .micro_sequences = 1};
  job.run.device = DeviceChoice::cuda;
  return job;
}

Counted six_steps(Job job, bool graphs) {
  job.gpu.graphs.value = graphs;
  const auto world = comm::make_self_world();
  Log log(false, "test");
  const auto data = open_data(job, "unused", *world, log);
  Session session(job, data, *world);
  Counted counted;
  for (std::int64_t step = 1; step <= 6; ++step) {
    const std::uint64_t before = emulated::num_submissions();
    session.step(step, [] { return Requests{}; });
    counted.submissions.push_back(emulated::num_submissions() - before);
  }
  if (graphs)
    counted.recordings = static_cast<std::int64_t>(session.graphs->num_recordings());
  return counted;
}

TEST(Submissions, AreFewerWhereMicroStepsAreGraphs) {
  TRIREME_NEEDS_GPU();
  const auto plain = six_steps(job_with(3), false).submissions,
             graphed = six_steps(job_with(3), true).submissions;
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

TEST(Submissions, RecordingsAreThoseOfThePlan) {
  TRIREME_NEEDS_GPU();
  for (std::int64_t micro_steps = 1; micro_steps <= 6; ++micro_steps)
    EXPECT_EQ(six_steps(job_with(micro_steps), true).recordings, num_recordings(micro_steps))
        << micro_steps << " micro-steps";
}

/// With everything that adds kernels to a block; what six_steps() counts includes the optimizer.
TEST(Submissions, KernelsOfAMicroStepAreNoMoreThanThePlanCounts) {
  TRIREME_NEEDS_GPU();
  constexpr std::int64_t micro_steps = 6, hidden = 3;  // in the libraries' calls of a block
  Job plain = job_with(micro_steps), most = plain;
  most.shape.dropout = 0.1;
  most.shape.recompute = model::Recompute::block;
  most.shape.norm = model::Norm::rms_norm;
  most.shape.activation = model::Activation::swiglu;
  most.shape.positions = model::Positions::rotary;
  most.shape.rotary_theta = 10000;
  most.shape.qk_norm = model::QkNorm::with_gain;
  most.shape.loss_rows = 2;
  for (const Job& job : {plain, most})
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      Job one = job;
      one.run.precision = precision;
      const auto dtype = precision == Precision::bf16 ? DType::bf16 : DType::f32;
      model::GptShape shape = one.shape;
      const std::int64_t kernels = kernels_of_a_micro_step(shape, dtype, 1);
      const auto counted =
          static_cast<std::int64_t>(six_steps(one, false).submissions.back()) / micro_steps;
      std::printf("kernels of a micro-step: %lld counted, %lld planned\n",
                  static_cast<long long>(counted), static_cast<long long>(kernels));
      EXPECT_LE(counted + hidden * shape.layers, kernels);
      EXPECT_LE(kernels, 3 * counted);
    }
}

}  // namespace
}  // namespace trireme::session
