// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <omp.h>

#include "base/text.hpp"
#include "base/threads.hpp"
#include "layout/budget.hpp"

#include "comm/control/interruption.hpp"
#include "comm/control/placement.hpp"
#include "comm/control/together.hpp"

#include "inference/text_sample.hpp"
#include "session/host_memory.hpp"
#include "session/machine.hpp"
#include "session/stop.hpp"
#include "train/record_start.hpp"
#include "train/resume.hpp"
#include "train/run.hpp"
#include "train/slow_ranks.hpp"
#include "train/spikes.hpp"

namespace trireme::train {
namespace {

/// Of one rank's part of a checkpoint, until the first was measured: a busy shared file system.
constexpr double assumed_bytes_per_s = 50e6;

class Trainer {
 public:
  Trainer(const session::Job& job,
          comm::World& world,
          Log& log,
          session::SignalScope& signals,
          MeasureCeiling measure_ceiling,
          session::MemoryCopies& copies);
  ExitCode run();

 private:
  /// Step `number`, and the results of the one before.
  session::Requests step(std::int64_t number);
  /// Records and prints the step that is not recorded yet, if there is one. Collective.
  void look();
  /// What is due after step `number`, in the order of the header.
  void between_steps(std::int64_t number);
  void evaluate(std::int64_t step);
  void evaluate_sets(std::int64_t step);
  /// Runs `action`, which a request to stop interrupts. Returns whether it was finished.
  template <class Action>
  bool interruptible(const char* what, const Action& action);
  /// Evaluates before the first step: the initial state, or what the start before dropped.
  void evaluate_at_start();
  ExitCode stopped(session::StopReason reason, const std::string& advice);
  void print_sample(std::int64_t step);
  /// Begins a checkpoint, after one that is under way, and waits for it where the run must.
  void save(std::int64_t step, bool wait);
  void copy_to_memory(std::int64_t step);
  /// What a checkpoint holds in addition to what is known at the start.
  [[nodiscard]] record::NameValues facts_now() const;
  void note(const session::Saver::Saved& saved);
  /// `whole`: the run has made its last step, so there is time to measure the machine.
  void finish(bool whole);
  ExitCode steps();

  /// A line for the log about a step.
  template <class... Args>
  void say(std::int64_t step, fmt::format_string<Args...> text, Args&&... args) {
    run_.clear_progress();
    log_.info("step {:>6}/{}  {}", step, job_.run.steps,
              fmt::format(text, std::forward<Args>(args)...));
  }
  /// The same for a warning of the first rank, if there is one.
  void warn(std::int64_t step, const std::string& line) {
    if (world_.rank() != 0 || line.empty())
      return;
    run_.clear_progress();
    log_.warning("step {:>6}/{}  {}", step, job_.run.steps, line);
  }
  /// What this rank requests now.
  [[nodiscard]] session::Requests requests();
  [[nodiscard]] comm::Wanted stop_is_wanted() {
    return [this] { return requests().stop().has_value(); };
  }

  [[nodiscard]] bool due(std::int64_t step, std::int64_t every) const {
    return every > 0 && (step % every == 0 || step == job_.run.steps);
  }
  [[nodiscard]] bool checks_replicas(std::int64_t step, bool saves) const {
    const auto& when = job_.parallel.check_replicas;
    return (when.at_checkpoints && (saves || step == run_.first_step)) ||
           (when.every_steps > 0 && step % when.every_steps == 0);
  }
  /// Of all steps of the run after this one.
  [[nodiscard]] double tokens_after(std::int64_t step) const {
    const std::int64_t samples =
        run_.training.sizes.until(job_.run.steps) - run_.training.sizes.until(step);
    return static_cast<double>(samples * job_.shape.context);
  }

  Run run_;
  const session::Job& job_;
  const double flops_per_token_ = model::flops_per_token(job_.shape);  // builds all layers
  comm::World& world_;
  Log& log_;
  session::SignalScope& signals_;
  const MeasureCeiling measure_ceiling_;
  const std::int64_t memory_every_;  ///< steps; 0: no copies in memory
  session::Walltime walltime_;
  double slowest_copy_s_ = 0;  ///< in memory
  SlowRanks slow_ranks_;
  Spikes spikes_;             ///< on rank 0
  bool interrupted_ = false;  ///< an evaluation or a sample was dropped: a stop is requested
  bool dropped_ = false;      ///< an evaluation, which the next start makes up

  /// The last step enqueued, and what is known of it before its results are read.
  struct Enqueued {
    std::int64_t step = 0, tokens = 0, allocations = 0;
    bool seen = true;
  } newest_;
  double saved_at_ = device::steady_seconds();  ///< when the newest checkpoint was begun
  std::optional<double> first_validation_, last_validation_;
};

Trainer::Trainer(const session::Job& job,
                 comm::World& world,
                 Log& log,
                 session::SignalScope& signals,
                 MeasureCeiling measure_ceiling,
                 session::MemoryCopies& copies)
    : run_(job, world, log, signals, copies),
      job_(job),
      world_(world),
      log_(log),
      signals_(signals),
      measure_ceiling_(measure_ceiling),
      memory_every_(
          session::keeps_memory_copies(job, world.size()) ? job.checkpoint.memory_every_steps : 0),
      slow_ranks_(world, run_.training.energy, run_.training.device->kind() == device::Kind::cpu) {}

session::Requests Trainer::step(std::int64_t number) {
  const std::uint64_t allocated = run_.training.scratch.num_allocations();
  const session::Requests agreed = run_.training.enqueue(number, [&] {
    session::Requests mine = requests();
    mine.checkpoint = signals_.take_checkpoint() ? 1 : 0;
    if (world_.rank() == 0 && job_.checkpoint.every_minutes > 0 &&
        device::steady_seconds() - saved_at_ >= 60 * job_.checkpoint.every_minutes)
      mine.checkpoint = 1;
    mine.writing = run_.saver.writing() ? 1 : 0;
    mine.more = slow_ranks_.words();
    return mine;
  });
  for (const std::string& line : slow_ranks_.look(number)) warn(number, line);
  look();
  for (const std::string& line : run_.training.device->take_notes())
    if (world_.rank() == 0) {
      run_.clear_progress();
      log_.warning("{}", line);
    }
  const auto next_sample = static_cast<std::int64_t>(run_.training.next_sample);
  for (const std::string& line : run_.epochs->passed(next_sample)) say(number, "{}", line);
  if (const std::int64_t sequences = run_.training.sizes.at(number);
      number > run_.first_step && sequences != run_.training.sizes.at(number - 1))
    say(number, "the batch is {} sequences now, in {} micro-steps", sequences,
        run_.training.batches(number).micro_steps());
  newest_ = {number,
             (next_sample - run_.data.train.skips().count(next_sample)) * job_.shape.context,
             static_cast<std::int64_t>(run_.training.scratch.num_allocations() - allocated), false};
  run_.training.record_for(number);
  // The engine keeps the times of two updates only.
  if (agreed.unfinished == 0 || job_.optimizer.outer.on())
    look();
  return agreed;
}

session::Requests Trainer::requests() {
  session::Requests mine;
  if (const auto reason = signals_.stop())
    mine.stop_for(*reason);
  if (world_.rank() == 0 &&
      walltime_.ends(signals_.deadline() - device::steady_seconds(), run_.saver.under_way()))
    mine.stop_for(session::StopReason::time_limit);
  return mine;
}

void Trainer::look() {
  if (newest_.seen)
    return;
  newest_.seen = true;
  const session::StepOutcome outcome = run_.training.outcome(newest_.step);
  const double rate = static_cast<double>(outcome.tokens) / outcome.seconds;
  const double waited = run_.journal->step({.step = newest_.step,
                                            .loss = outcome.loss,
                                            .bits_per_byte = outcome.bits_per_byte,
                                            .grad_norm = outcome.grad_norm,
                                            .learning_rate = outcome.learning_rate,
                                            .tokens = newest_.tokens,
                                            .seconds = outcome.seconds,
                                            .tokens_per_s = rate,
                                            .flops_per_s = rate * flops_per_token_,
                                            .exposed_s = outcome.times.exposed_s,
                                            .allocations = newest_.allocations,
                                            .cpu_joules = outcome.energy.cpu(),
                                            .gpu_joules = outcome.energy.gpu()},
                                           outcome);
  if (!job_.optimizer.outer.on())  // waits between local steps are not known
    slow_ranks_.measured(outcome.optimizer_began - outcome.began - waited,
                         run_.training.batches(newest_.step));
  if (outcome.leaf_norm_squared && outcome.not_finite.empty()) {
    const std::int64_t sequences = run_.training.sizes.at(newest_.step);
    run_.journal->append(run_.noise_scale->add(
        newest_.step, {sequences / job_.parallel.logical_shards.value_or(1), sequences},
        *outcome.leaf_norm_squared, outcome.grad_norm * outcome.grad_norm));
  }
  if (outcome.not_finite.empty()) {
    if (!outcome.norms.empty())
      run_.journal->norms(newest_.step, outcome.norms);
    if (world_.rank() == 0)
      warn(newest_.step, spikes_.look(newest_.step, outcome.grad_norm, outcome.norms));
  } else {
    run_.journal->append(record::SkippedRow{newest_.step, outcome.not_finite});
    warn(newest_.step, "skipped: the gradient was not finite: " + outcome.not_finite);
  }
  if (run_.progress)
    run_.progress->step(newest_.step, outcome, tokens_after(newest_.step),
                        run_.noise_scale ? run_.noise_scale->tokens() : unknown_noise_scale);
}

void Trainer::between_steps(std::int64_t number) {
  const bool pauses = due(number, job_.evaluate.every_steps) ||
                      due(number, job_.sample.every_steps) || (run_.sets && run_.sets->due(number));
  if (pauses || due(number, collect_every_steps))
    look();
  if (due(number, collect_every_steps)) {
    run_.expect_in_place();
    run_.journal->collect(number);
  }
  if (due(number, job_.evaluate.every_steps))
    evaluate(number);
  if (run_.sets && run_.sets->due(number))
    evaluate_sets(number);
  if (due(number, job_.sample.every_steps))
    print_sample(number);
  if (pauses)
    run_.training.energy.begin();
}

template <class Action>
bool Trainer::interruptible(const char* what, const Action& action) {
  try {
    if (!interrupted_) {
      action();
      return true;
    }
  } catch (const comm::Interrupted&) {
    interrupted_ = true;
  }
  run_.clear_progress();
  log_.info("{} was dropped, because the run is about to stop", what);
  return false;
}

void Trainer::evaluate(std::int64_t step) {
  std::optional<session::Evaluation> found;
  if (!interruptible("the validation", [&] { found = run_.training.evaluate(stop_is_wanted()); })) {
    dropped_ = true;
    return run_.journal->dropped(step, true);
  }
  if (!first_validation_)
    first_validation_ = found->loss;
  last_validation_ = found->loss;
  run_.journal->append(record::ValidationRow{step, found->loss, found->bits_per_byte});
  say(step, "validation loss {:.4f}{}", found->loss, bits_text(found->bits_per_byte));
}

void Trainer::evaluate_sets(std::int64_t step) {
  const device::Span span(run_.training.recorder, device::SpanName::evaluate);
  std::vector<EvaluationSets::Result> results;
  if (!interruptible("the evaluation of evaluate.sets", [&] {
        results = run_.sets->evaluate(step, run_.training, stop_is_wanted());
      })) {
    dropped_ = true;
    return run_.journal->dropped(step, false);
  }
  for (const auto& result : results) {
    run_.journal->evaluation(result.set->name, result.of, result.row);
    say(step, "{}: {}", result.set->name, result.text);
  }
}

void Trainer::print_sample(std::int64_t step) {
  const device::Span span(run_.training.recorder, device::SpanName::sample);
  run_.training.engine.wait_for_parameters();
  // All ranks gather what the model reads, token by token, where none has it whole. Then they end
  // the sample together; otherwise the first rank is alone with it.
  const bool before = interrupted_, alone = !run_.training.engine.parameters_share_slots();
  comm::Interruption interruption(world_, stop_is_wanted());
  const auto drawn = [&](std::size_t /*text*/, std::int32_t /*token*/) {
    if (!alone)
      interruption.check();
    else if (requests().stop())
      throw comm::Interrupted();
  };
  const auto print = [&] {
    const auto text =
        inference::continue_text(run_.training.model, *run_.training.device, *job_.tokenizer,
                                 {job_.sample.prompt, job_.sample.tokens, job_.sample.temperature,
                                  static_cast<std::uint64_t>(job_.run.seed)},
                                 run_.training.hooks, *run_.training.compute_stream, drawn);
    if (world_.rank() != 0)
      return;
    run_.clear_progress();
    log_.info("sample after step {}:\n{}{}\n", step, job_.sample.prompt, text);
  };
  const auto print_if_not_interrupted = [&] { interruptible("the sample", print); };
  if (alone)
    comm::on_first_rank(world_, print_if_not_interrupted);
  else
    comm::together(world_, print_if_not_interrupted);
  if (alone)  // only the first rank knows whether it dropped the sample
    interrupted_ = before;
}

record::NameValues Trainer::facts_now() const {
  if (!run_.noise_scale)
    return {};
  return {{noise_scale_fact, run_.noise_scale->packed()}};
}

void Trainer::copy_to_memory(std::int64_t step) {
  const double begin = device::steady_seconds();
  const device::Span span(run_.training.recorder, device::SpanName::checkpoint_stall);
  run_.journal->flush(world_.local_size() < world_.size());  // the host of rank 0 may be lost
  run_.saver.copy_to(run_.copies, step, run_.training.next_sample, *run_.training.compute_stream,
                     facts_now());
  slowest_copy_s_ = std::max(slowest_copy_s_, device::steady_seconds() - begin);
}

void Trainer::save(std::int64_t step, bool wait) {
  if (run_.saver.under_way())
    note(run_.saver.finish());
  if (run_.saved_step == step)
    return;
  run_.expect_in_place();
  run_.journal->flush();
  run_.saver.begin(step, run_.training.next_sample, *run_.training.compute_stream, facts_now());
  run_.saved_step = step;
  saved_at_ = device::steady_seconds();
  if (wait || !job_.checkpoint.asynchronous)
    note(run_.saver.finish());
}

void Trainer::note(const session::Saver::Saved& saved) {
  run_.journal->checkpoint(saved);
  if (world_.rank() != 0)  // rank 0 has what was saved, and when to end
    return;
  walltime_.checkpoint_took(saved.needed_s);
  run_.clear_progress();
  for (const std::string& warning : saved.files.warnings) log_.warning("{}", warning);
  const auto bytes = static_cast<double>(saved.files.bytes);
  say(saved.step, "checkpoint {} ({} in {}, {}/s; training was paused for {})",
      saved.files.directory, bytes_text(bytes), duration_text(saved.files.seconds),
      bytes_text(bytes / saved.files.seconds), duration_text(saved.stall_s));
}

void Trainer::finish(bool whole) {
  if (run_.saver.under_way())
    note(run_.saver.finish());
  run_.training.engine.wait_for_parameters();
  run_.expect_in_place();
  run_.progress.reset();
  if (first_validation_ != last_validation_)
    log_.info("validation loss {:.4f} before, {:.4f} after", *first_validation_, *last_validation_);
  if (world_.rank() == 0)
    run_.journal->print_summary();
  if (const auto stop = session::agree(world_, requests()).stop(); whole && stop)
    log_.info("skipped measuring what matrix products reach on this machine: {}",
              signals_.text_of(*stop));
  else if (whole)
    run_.journal->compare_with_ceiling(measure_ceiling_);
  run_.journal->close(newest_.step, run_.saver, whole);
  std::error_code ignored;
  const bool saved =
      world_.rank() == 0 && std::filesystem::exists(run_.directory.checkpoints(), ignored);
  log_.info(
      "all files are in {}: run.h5 and steps.jsonl (the record), log.txt, deck.resolved.yaml{}",
      run_.directory.path(), saved ? ", checkpoints/" : "");
}

ExitCode Trainer::run() {
  run_.start();
  if (!run_.finished)
    walltime_.expect_checkpoint(static_cast<double>(layout::snapshot_bytes(
                                    run_.training.plan, run_.training.optimizer.slots())) /
                                assumed_bytes_per_s);
  if (run_.finished)
    comm::on_first_rank(world_, [&] { complete_run_file(run_.directory.path(), log_); });
  if (run_.finished && run_.first_step <= job_.run.steps) {
    log_.info(
        "the run in {} is finished: steps.jsonl holds all {} steps, and the deck asks for no "
        "checkpoint of the last. To start over, name another run.directory",
        run_.directory.path(), job_.run.steps);
    return ExitCode::done;
  }
  if (run_.finished) {
    log_.info(
        "the run in {} is finished: step {} of {}. To continue, raise run.steps; to start over, "
        "name another run.directory",
        run_.directory.path(), run_.first_step - 1, job_.run.steps);
    return ExitCode::done;
  }
  try {
    return steps();
  } catch (const UserError&) {  // on all ranks alike: what was saved before the mistake stays saved
    if (run_.saver.under_way())
      note(run_.saver.finish());
    throw;
  }
}

void Trainer::evaluate_at_start() {
  newest_.step = run_.first_step - 1;
  const bool initial = run_.first_step == 1;
  if (job_.evaluate.every_steps > 0 && (initial || run_.journal->owes_validation()))
    evaluate(newest_.step);
  if (run_.sets && (initial || run_.journal->owes_evaluation()))
    evaluate_sets(newest_.step);
}

ExitCode Trainer::stopped(session::StopReason reason, const std::string& advice) {
  finish(false);
  log_.info("stopped after step {} of {}: {}. {}", newest_.step, job_.run.steps,
            signals_.text_of(reason), advice);
  return ExitCode::requeue;
}

ExitCode Trainer::steps() {
  evaluate_at_start();
  if (dropped_)
    return stopped(session::agree(world_, requests()).stop().value(),
                   "Run the same command again to resume");
  run_.training.energy.begin();
  for (std::int64_t number = run_.first_step; number <= job_.run.steps; ++number) {
    const double begin = device::steady_seconds();
    const session::Requests agreed = step(number);
    auto stops_for = agreed.stop();
    const bool last = number == job_.run.steps;
    bool saves = due(number, job_.checkpoint.every_steps) || agreed.checkpoint > 0 || stops_for ||
                 (last && job_.checkpoint.regular());
    if (run_.saver.under_way() && agreed.writing == 0)
      if (const auto saved = run_.saver.advance())
        note(*saved);
    const bool copies = due(number, memory_every_) && !last;
    if (saves || copies || last)
      look();
    if (checks_replicas(number, saves)) {
      look();
      run_.training.check_replicas(number);
    }
    // What else is between steps can be interrupted, so it needs no time of its own before the end.
    walltime_.step_took(device::steady_seconds() - begin + slowest_copy_s_);
    interrupted_ = stops_for.has_value();
    between_steps(number);
    if (interrupted_ && !stops_for) {
      look();
      stops_for = session::agree(world_, requests()).stop();
      saves = true;
    }
    if (saves)
      save(number, stops_for || last);
    if (copies && !stops_for)
      copy_to_memory(number);
    if (stops_for && (!last || dropped_))
      return stopped(*stops_for,
                     std::string("A checkpoint was saved; run the same command again to ") +
                         (last ? "make up the evaluation" : "resume"));
  }
  finish(true);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<session::JobClock> limit_time(const session::Job& job,
                                              double started_at,
                                              const comm::World& world,
                                              Log& log,
                                              session::SignalScope& signals) {
  if (world.rank() != 0)
    return nullptr;
  std::string warning;
  const double walltime = job.run.walltime.given() ? job.run.walltime.value->seconds
                                                   : std::numeric_limits<double>::infinity();
  auto clock = std::make_unique<session::JobClock>(started_at + walltime, signals, warning);
  if (!warning.empty())
    log.warning("{}", warning);
  return clock;
}

ExitCode train(const session::Job& job,
               comm::World& world,
               Log& log,
               session::SignalScope& signals,
               double started_at,
               MeasureCeiling measure_ceiling,
               session::MemoryCopies& copies) {
  std::string quota;
  const int threads = session::choose_threads(job.run.threads, world, &quota);
  {
    std::optional<HeldThreads> held;  // all ranks hold theirs at the same time
    comm::together(world, [&] { held.emplace(threads - 1); });
  }
  omp_set_num_threads(threads);
  if (world.rank() == 0 && !quota.empty())
    log.info("{}", quota);
  const auto placement = comm::describe(comm::gather_placement(world, threads));
  for (const auto& [text, warning, remedy] : placement)
    if (world.rank() == 0)  // every rank has the same lines
      warning ? log.warning("{}: {}", text, remedy) : log.info("{}", text);
  std::string limits;
  for (const auto& [text, remedy] :
       session::limit_problems_here(world.host(), world.size() - world.local_size()))
    limits += fmt::format("{}{}: {}", limits.empty() ? "" : "; ", text, remedy);
  const auto of_all = world.gather(limits);
  for (const std::string& line : std::set(of_all.begin(), of_all.end()))
    if (!line.empty())
      log.warning("{}", line);
  const auto clock = limit_time(job, started_at, world, log, signals);
  return Trainer(job, world, log, signals, measure_ceiling, copies).run();
}

}  // namespace trireme::train
