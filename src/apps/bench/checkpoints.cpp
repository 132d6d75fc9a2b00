// SPDX-License-Identifier: Apache-2.0
#include "bench/checkpoints.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "base/quantile.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/control/temporary_directory.hpp"
#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint_writer.hpp"

#include "bench/race.hpp"

namespace trireme::bench {
namespace {

constexpr const char* states[] = {"master", "moment1", "moment2"};
constexpr std::int64_t num_states = std::ssize(states);
constexpr int num_checkpoints = 5;  // of each size
constexpr std::int64_t many_parameters = 128;
constexpr std::int64_t little_bytes = 8 << 20;
constexpr std::int64_t most_bytes = 192 << 20;

struct MadeUp {
  std::int64_t parameters = 1;
  std::int64_t elements = 1;  ///< of each parameter

  MadeUp(std::int64_t num_parameters, std::int64_t all_bytes)
      : parameters(num_parameters),
        elements(all_bytes / (num_parameters * num_states * std::int64_t{sizeof(float)})) {}

  [[nodiscard]] double tensors() const { return static_cast<double>(parameters * num_states); }
  [[nodiscard]] double bytes() const {
    return tensors() * static_cast<double>(elements) * sizeof(float);
  }
};

layout::Plan plan_of(const MadeUp& state, int ranks) {
  std::vector<layout::Parameter> table;
  for (std::int64_t p = 0; p < state.parameters; ++p)
    table.push_back({.name = fmt::format("p{}", p), .shape = {state.elements}});
  return {table, {.ranks = ranks}};
}

/// Computes on all threads of all ranks, in rounds as long as a run's steps with barriers between.
class Compute {
 public:
  /// Collective.
  Compute(double step_s, comm::World& world)
      : world_(world), values_(static_cast<std::size_t>(numbers * omp_get_max_threads()), 1.0F) {
    const auto device = device::make_cpu_device(1);
    const auto stream = device->make_stream(device::StreamMode::inlined, "compute");
    const double pass_s = race({[this] { pass(); }}, *stream, world, {}).front();
    passes_ = std::max(1, static_cast<int>(std::min(step_s, most_s) / pass_s));
  }

  /// Computes at least one round, until all ranks have finished writing.
  void run_during(const record::CheckpointWriter& writer) {
    double busy = 0;
    do {
      for (int i = 0; i < passes_; ++i) pass();
      busy = writer.busy() ? 1 : 0;
    } while (comm::largest_of_ranks(world_, std::array{busy}).front() > 0);
  }

 private:
  static constexpr std::int64_t numbers = 1 << 21;  ///< 8 MiB per thread
  /// Limit for a round: steps may take seconds, and every checkpoint takes two rounds.
  static constexpr double most_s = 0.25;

  void pass() {
#pragma omp parallel for schedule(static)
    for (int thread = 0; thread < omp_get_max_threads(); ++thread)
      for (std::int64_t i = numbers * thread; i < numbers * (thread + 1); ++i) {
        float& x = values_[static_cast<std::size_t>(i)];
        x = x * 0.5F + 0.5F;
      }
  }

  comm::World& world_;
  std::vector<float> values_;
  int passes_ = 1;
};

/// Median seconds of a checkpoint during computation.
double seconds_of(const MadeUp& state,
                  record::CheckpointFacts facts,
                  Compute& compute,
                  comm::World& world,
                  const std::string& run_directory) {
  const layout::Plan plan = plan_of(state, world.size());
  std::vector<float> values(static_cast<std::size_t>(state.elements), 1.0F);
  const ConstView all(reinterpret_cast<const std::byte*>(values.data()), state.elements,
                      DType::f32);
  std::vector<record::Slab> mine;
  for (const char* name : states)
    for (std::size_t b = 0; b < plan.buckets().size(); ++b)
      for (const layout::Piece& piece : plan.find_pieces(static_cast<BucketIndex>(b), world.rank()))
        mine.push_back(
            {name, piece.parameter, piece.parameter_begin, all.slice(0, piece.elements)});
  record::CheckpointWriter writer(run_directory, plan, record::Retention(1, 0), world);
  std::vector<double> seconds;
  for (int step = 1; step <= num_checkpoints; ++step) {
    facts.step = step;
    writer.start(facts, mine);
    std::optional<record::SavedCheckpoint> saved;
    do {
      compute.run_during(writer);
      saved = writer.advance();
    } while (!saved);
    const double mine_s = saved->seconds;
    seconds.push_back(comm::largest_of_ranks(world, std::array{mine_s}).front());
  }
  return median(seconds);
}

}  // namespace

void measure_checkpoints(comm::World& world,
                         const std::string& directory,
                         const record::CheckpointFacts& facts,
                         double step_s,
                         plan::Machine& machine) {
  const MadeUp one(1, little_bytes), many(many_parameters, little_bytes),
      large(many_parameters, most_bytes);
  Compute compute(step_s, world);
  std::vector<double> seconds;
  for (const MadeUp& state : {one, many, large}) {
    const comm::TemporaryDirectory place(world, directory);
    seconds.push_back(seconds_of(state, facts, compute, world, place.path()));
  }
  machine.storage_tensor_s =
      std::max(0.0, (seconds[1] - seconds[0]) / (many.tensors() - one.tensors()));
  machine.storage_bytes_per_s =
      (large.bytes() - many.bytes()) / std::max(seconds[2] - seconds[1], 1e-6);
  machine.storage_latency_s = std::max(0.0, seconds[0] - one.tensors() * machine.storage_tensor_s -
                                                one.bytes() / machine.storage_bytes_per_s);
}

}  // namespace trireme::bench
