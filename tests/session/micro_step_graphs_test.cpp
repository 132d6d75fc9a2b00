// SPDX-License-Identifier: Apache-2.0
// Captured micro-steps must give the same bits as others, with any work between two micro-steps,
// and call the hooks at the same points.
#include "session/micro_step_graphs.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "model/small_model.hpp"

#include "session/saver.hpp"
#include "session/session.hpp"
#include "session/small_job.hpp"

#include "support/backends.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::session {
namespace {

struct StepNumbers {
  std::vector<double> losses, grad_norms, validations;
  bool operator==(const StepNumbers&) const = default;
};

class GraphedSession : public ::testing::TestWithParam<test::Backend> {
 protected:
  GraphedSession() {
    job_.shape = {
        .layers = 2, .heads = 1, .channels = 8, .context = 8, .vocabulary = 16, .dropout = 0.1};
    job_.data.train.synthetic = 1000;
    job_.parallel.bucket_elements.value = 600;
    job_.evaluate = {.every_steps = 1, .batches = 1};
    job_.optimizer.learning_rate = 0.02;
    job_.run.device = on_gpu() ? DeviceChoice::cuda : DeviceChoice::cpu;
    job_.run.precision = GetParam().dtype == DType::bf16 ? Precision::bf16 : Precision::fp32;
  }

  void set_micro_steps(std::int64_t count) {
    job_.batch = {.sequences = count, .micro_sequences = 1};
  }

  /// Runs steps [first, last], from the checkpoint of the step before `first` unless `first` is 1,
  /// with an evaluation after every second step, and a checkpoint after the last.
  StepNumbers train(bool graphs, std::int64_t first, std::int64_t last) {
    job_.gpu.graphs.value = graphs;
    const auto world = comm::make_self_world();
    Log log(false, "test");
    const auto data = open_data(job_, "unused", *world, log);
    Session session(job_, data, *world, true);
    Saver saver(session, *world);
    const std::string directory = graphs ? directory_ / "graphs" : directory_ / "plain";
    if (first == 1)
      saver.initialize();
    else
      session.next_sample = saver.load_newest(directory, log).value().facts.next_sample;
    StepNumbers trained;
    for (std::int64_t step = first; step <= last; ++step) {
      const StepOutcome outcome = session.step(step, [] { return Requests{}; });
      trained.losses.push_back(outcome.loss);
      trained.grad_norms.push_back(outcome.grad_norm);
      if (step % 2 == 0)
        trained.validations.push_back(session.evaluate().value().loss);
    }
    EXPECT_EQ(session.graphs.has_value(), graphs);
    num_recordings_ = graphs ? session.graphs->num_recordings() : 0;
    if (last < num_steps) {
      saver.prepare(directory, {});
      saver.begin(last);
      saver.finish();
    }
    return trained;
  }
  [[nodiscard]] static bool on_gpu() { return GetParam().kind == device::Kind::cuda; }

  /// The first step is not captured; the others use the two batch slots alternately.
  static constexpr std::int64_t num_steps = 5;
  test::ScratchDirectory directory_;
  Job job_ = small_job();
  std::size_t num_recordings_ = 0;
};

TEST_P(GraphedSession, GivesTheSameBitsAsWithoutGraphs) {
  for (const std::int64_t micro_steps : {1, 2, 3})
    for (const auto& [shard, reshards] : {std::pair{layout::Shard::none, true},
                                          {layout::Shard::optimizer, true},
                                          {layout::Shard::gradients, true},
                                          {layout::Shard::parameters, true},
                                          {layout::Shard::parameters, false}}) {
      const bool sharded = shard != layout::Shard::none;
      if (on_gpu() && (micro_steps == 2 || sharded == (micro_steps == 1)))
        continue;  // emulated GPUs are slow; the other test has two micro-steps
      SCOPED_TRACE(testing::Message() << micro_steps << " micro-steps, shard " << word(shard)
                                      << (reshards ? "" : ", not resharded"));
      set_micro_steps(micro_steps);
      job_.parallel.shard = shard;
      job_.parallel.reshard_after_forward = reshards;
      job_.shape.recompute = sharded ? model::Recompute::block : model::Recompute::none;
      const bool mixed = shard == layout::Shard::gradients;
      job_.shape.layers = mixed ? 3 : 2;
      if (mixed)
        job_.shape.recompute = model::RecomputeKey(
            std::vector{model::Recompute::block, model::Recompute::block, model::Recompute::gelu});
      const StepNumbers graphed = train(true, 1, num_steps);
      const auto places = static_cast<std::size_t>(std::min<std::int64_t>(
          micro_steps, layout::shards_gradients(shard) ? 2 : 3));  // there all are "last"
      EXPECT_GE(num_recordings_, places);
      EXPECT_LE(num_recordings_, places * (on_gpu() ? 2 : 1)) << "a GPU has two batch slots";
      EXPECT_EQ(graphed, train(false, 1, num_steps));
    }
}

TEST_P(GraphedSession, ResumesToTheSameBits) {
  set_micro_steps(2);
  const StepNumbers whole = train(false, 1, num_steps);
  const StepNumbers before = train(true, 1, 2);
  EXPECT_GT(num_recordings_, 0U);
  const StepNumbers after = train(true, 3, num_steps);
  EXPECT_GT(num_recordings_, 0U);
  StepNumbers both = before;
  both.losses.insert(both.losses.end(), after.losses.begin(), after.losses.end());
  both.grad_norms.insert(both.grad_norms.end(), after.grad_norms.begin(), after.grad_norms.end());
  both.validations.insert(both.validations.end(), after.validations.begin(),
                          after.validations.end());
  EXPECT_EQ(both, whole);
}

TEST_P(GraphedSession, AddsGradientsAsATree) {
  if (on_gpu())
    GTEST_SKIP() << "NCCL adds in one order only";
  set_micro_steps(4);
  job_.parallel.reduction = comm::Reduction::tree;
  job_.parallel.logical_shards.value = 2;
  EXPECT_EQ(train(true, 1, num_steps), train(false, 1, num_steps));
}

TRIREME_ON_BACKENDS(GraphedSession);

/// Records the calls of the hooks, and the gradients at the time of each call.
class Listener final : public model::Hooks {
 public:
  explicit Listener(model::testing::SmallModel& model) : model_(model) {}

  void before_use(std::span<const ParameterIndex> parameters, device::Stream& /*s*/) override {
    groups.emplace_back(parameters.begin(), parameters.end());
  }
  void before_write(ParameterIndex parameter, device::Stream& /*s*/) override {
    written.emplace_back(parameter, ready.size());
  }
  void gradient_ready(ParameterIndex parameter, device::Stream& /*s*/) override {
    ready.push_back(parameter);
    gradients.push_back(model_.gradient_now(at(parameter)));
  }

  std::vector<std::vector<ParameterIndex>> groups;
  std::vector<ParameterIndex> ready;
  /// The parameter, and the number of gradients that had been reported ready before.
  using Writes = std::vector<std::pair<ParameterIndex, std::size_t>>;
  Writes written;
  std::vector<std::vector<float>> gradients;

 private:
  model::testing::SmallModel& model_;
};

class GraphedModel : public ::testing::TestWithParam<test::Backend> {
 protected:
  GraphedModel()
      : model_(model::testing::small_shape(), GetParam()),
        plan_(model_.table, {.ranks = 1, .bucket_elements = 300}),
        tokens_(model_.device.allocate_shared_with_host(rows() * sizeof(std::int32_t), "tokens")),
        losses_(model_.device.allocate_shared_with_host(rows() * sizeof(float), "losses")) {
    const auto tokens = model::testing::random_tokens(static_cast<std::int64_t>(rows()), 11, 1);
    std::copy(tokens.begin(), tokens.end(), tokens_.view(DType::i32).as<std::int32_t>());
    model_.train(tokens, tokens);  // creates products and scratch
    model_.zero_gradients();
  }
  static std::size_t rows() { return 15; }
  /// The first write to each bucket.
  [[nodiscard]] Listener::Writes first_of_buckets(const Listener::Writes& all) const {
    std::vector<char> seen(plan_.buckets().size());
    Listener::Writes firsts;
    for (const auto& one : all)
      if (std::exchange(seen[at(plan_.placement(one.first).bucket)], char{1}) == 0)
        firsts.push_back(one);
    return firsts;
  }
  [[nodiscard]] model::Batch batch() const {
    return {tokens_.view(DType::i32), tokens_.view(DType::i32)};
  }

  model::testing::SmallModel model_;
  const layout::Plan plan_;
  device::Buffer tokens_, losses_;
};

TEST_P(GraphedModel, CallsTheHooksAsTheModelDoes) {
  Listener plain(model_);
  model_.gpt.train(batch(), losses_.view(DType::f32), true, plain, *model_.stream);
  ASSERT_GE(plan_.buckets().size(), 3U);
  for (const bool first : {true, false}) {
    const bool gradients_share_slots = first;
    Listener hooks(model_);
    MicroStepGraphs graphs(model_.gpt, plan_, hooks, *model_.stream, gradients_share_slots);
    for (const char* run : {"recorded", "replayed", "replayed again"}) {
      SCOPED_TRACE(testing::Message() << run << (first ? ", first" : ", not first"));
      hooks.groups.clear();
      hooks.ready.clear();
      hooks.written.clear();
      hooks.gradients.clear();
      model_.zero_gradients();
      graphs.train(batch(), losses_.view(DType::f32), first, true);
      EXPECT_EQ(hooks.ready, plain.ready);
      EXPECT_EQ(hooks.gradients, plain.gradients) << "a gradient was reported before it was final";
      EXPECT_EQ(hooks.written,
                gradients_share_slots ? first_of_buckets(plain.written) : Listener::Writes());
      if (first) {
        EXPECT_EQ(hooks.groups.front(), plain.groups.front());
        std::vector<char> asked(plan_.buckets().size());
        for (const auto& group : hooks.groups)
          for (const ParameterIndex parameter : group)
            asked[at(plan_.placement(parameter).bucket)] = 1;
        EXPECT_EQ(asked, std::vector<char>(asked.size(), 1));
      } else {
        ASSERT_EQ(hooks.groups.size(), 1U);
        EXPECT_EQ(hooks.groups.front().size(), plan_.parameters().size());
      }
    }
    EXPECT_EQ(graphs.num_recordings(), 1U);
  }
}

TEST_P(GraphedModel, LeavesTheStreamUsableWhenTheModelThrows) {
  nn::Hooks hooks;
  MicroStepGraphs graphs(model_.gpt, plan_, hooks, *model_.stream);
  const View losses = losses_.view(DType::f32);
  EXPECT_THROW(graphs.train(batch(), losses.slice(1, 3), true, true), ContractError);
  EXPECT_EQ(graphs.num_recordings(), 0U);
  model_.stream->synchronize();
  graphs.train(batch(), losses, true, true);
  EXPECT_EQ(graphs.num_recordings(), 1U);
}

TRIREME_ON_BACKENDS(GraphedModel);

}  // namespace
}  // namespace trireme::session
