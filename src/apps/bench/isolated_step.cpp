// SPDX-License-Identifier: Apache-2.0
#include "bench/isolated_step.hpp"

#include <algorithm>

#include <omp.h>

#include "base/quantile.hpp"
#include "device/recorder.hpp"

#include "model/layers.hpp"

#include "comm/control/together.hpp"

#include "session/rank_memory.hpp"
#include "session/saver.hpp"

#include "plan/compute_cost.hpp"

namespace trireme::bench {
namespace {

constexpr int lone_warmups = 3;
/// Minimum for parts that are too short for the clock.
constexpr double least_s = 1e-9;

session::Job alone(const session::Job& job, DType dtype) {
  session::Job one = job;
  one.run.device = session::DeviceChoice::cpu;
  one.run.threads.value = omp_get_max_threads();
  one.run.precision = dtype == DType::bf16 ? session::Precision::bf16 : session::Precision::fp32;
  one.batch.sequences = isolated_micro_steps * job.batch.micro_sequences;
  one.batch.schedule.clear();
  one.optimizer.outer.local_steps = 1;
  one.parallel = {};
  one.parallel.bucket_elements.value = 1;
  one.parallel.check_gradients = job.parallel.check_gradients;
  one.parallel.shard = layout::Shard::optimizer;
  one.evaluate.every_steps = 0;
  one.evaluate.noise_scale.every_steps = 0;
  one.record.spans = true;
  return one;
}

}  // namespace

IsolatedStep::IsolatedStep(const session::Job& job,
                           const batches::Split& data,
                           comm::World& world,
                           DType dtype)
    : world_(world),
      job_(alone(session::decided(job, world, *device::make_cpu_device(1), dtype), dtype)),
      self_(comm::make_self_world()),
      session_(job_, data, *self_) {
  session::Saver(session_, *self_).initialize();
}

StepPieces IsolatedStep::step() {
  session_.recorder.clear();
  const session::StepOutcome outcome = session_.step(++number_, [] { return session::Requests{}; });
  StepPieces pieces{.step = outcome.seconds, .ready = {}};
  double last_began = 0;
  for (const device::TimeSample& sample : session_.recorder.samples())
    switch (static_cast<device::SpanName>(sample.name)) {
      case device::SpanName::model_train:
        (sample.micro == 0 ? pieces.micro_step : pieces.last_micro_step) = sample.duration_s;
        last_began = session_.recorder.anchor() + sample.begin_s;
        break;
      case device::SpanName::optim_step:
        pieces.update += sample.duration_s;
        break;
      case device::SpanName::optim_matrices:
        pieces.matrices += sample.duration_s;
        break;
      default:
        break;
    }
  pieces.norm = outcome.sums_begin - outcome.optimizer_began;
  pieces.update -= pieces.norm + pieces.matrices;
  for (const reduce::ReductionTimes& one : outcome.times.reductions)
    if (one.round == outcome.times.reductions.back().round)  // of the last micro-step
      pieces.ready.push_back(
          std::clamp((one.ready - last_began) / pieces.last_micro_step, 0.0, 1.0));
  return pieces;
}

StepPieces IsolatedStep::slowest() {
  world_.barrier();
  const std::vector<StepPieces> all = comm::gather_packed(world_, step());
  StepPieces slowest = *std::ranges::max_element(all, {}, &StepPieces::step);
  double sum = 0;
  for (const StepPieces& one : all) sum += one.step;
  slowest.waiting = slowest.step - sum / world_.size();
  return slowest;
}

plan::Compute IsolatedStep::measure(int steps) {
  double taken = 0;
  for (int i = 0; i < lone_warmups && (i == 0 || taken < warm_s); ++i) taken += slowest().step;
  std::vector<StepPieces> all;
  for (int i = 0; i < steps; ++i) all.push_back(slowest());
  const auto middle = [&](const auto& value) {
    std::vector<double> values;
    values.reserve(all.size());
    for (const StepPieces& pieces : all) values.push_back(value(pieces));
    return std::max(median(values), least_s);
  };
  const layout::Plan& plan = session_.plan;
  const auto elements = static_cast<double>(plan.parameter_elements());
  const auto tokens = static_cast<double>(job_.batch.micro_sequences * job_.shape.context);
  plan::Compute row{
      .model = plan::model_text(job_.shape),
      .precision = plan::numbers_of(session_.dtype),
      .threads = omp_get_max_threads(),
      .micro_sequences = job_.batch.micro_sequences,
      .ranks_on_host = world_.local_size(),
      .micro_step_flops = tokens * model::flops_per_token(job_.shape),
      .micro_step_s = middle([](const StepPieces& p) { return p.micro_step; }),
      .last_micro_step_s = middle([](const StepPieces& p) { return p.last_micro_step; }),
      .rest_s = middle([](const StepPieces& p) { return p.rest(); }),
      .norm_s_per_element = middle([](const StepPieces& p) { return p.norm; }) / elements,
      .update_s_per_element = middle([](const StepPieces& p) { return p.update; }) / elements,
      .waiting_share = middle([](const StepPieces& p) { return p.waiting / p.step; }),
      .ready = {}};
  if (session_.optimizer.matrix_bytes() > 0)
    row.matrices_s = middle([](const StepPieces& p) { return p.matrices; });
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    for (const ParameterIndex parameter : plan.buckets()[b].parameters)
      row.ready.push_back({plan.parameter(parameter).name,
                           middle([b](const StepPieces& p) { return p.ready[b]; })});
  return row;
}

}  // namespace trireme::bench
