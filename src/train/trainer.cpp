// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include <optional>
#include <string>

#include <fmt/format.h>
#include <omp.h>

#include "base/text.hpp"

#include "comm/placement.hpp"
#include "comm/together.hpp"

#include "record/run_directory.hpp"

#include "train/journal.hpp"
#include "train/machine.hpp"
#include "train/progress.hpp"
#include "train/saver.hpp"
#include "train/session.hpp"
#include "train/stop.hpp"
#include "train/text_sample.hpp"

namespace trireme::train {
namespace {

/// Samples travel to rank 0 this often.
constexpr std::int64_t collect_every_steps = 50;

/// The run directory, or the first of DIRECTORY-2, DIRECTORY-3, … that is not finished, when the
/// deck wants a new run then.
std::string choose_directory(const Job& job, comm::World& world) {
  std::string path = job.run.directory;
  const auto finished = [&] {
    const auto newest = record::newest_checkpoint(path);
    return newest && newest->step >= job.run.steps;
  };
  comm::on_first_rank(world, [&] {
    if (job.run.when_finished == WhenFinished::renew)
      for (int number = 2; finished(); ++number)
        path = fmt::format("{}-{}", job.run.directory, number);
  });
  return world.broadcast(std::move(path), 0);
}

class Trainer {
 public:
  Trainer(const Job& job, comm::World& world, Log& log, SignalScope& signals, double started_at);
  ExitCode run();

 private:
  /// Initial values or the newest checkpoint, and the files of the run.
  void start();
  void open_files(std::optional<std::int64_t> resumed_step);
  StepOutcome step(std::int64_t number);
  /// What is due after step `number`, in the order of the header.
  void between_steps(std::int64_t number, const StepOutcome& outcome);
  void evaluate(std::int64_t step);
  void print_sample(std::int64_t step);
  void save(std::int64_t step);
  void finish();

  [[nodiscard]] bool due(std::int64_t step, std::int64_t every) const {
    return every > 0 && (step % every == 0 || step == job_.run.steps);
  }
  /// Makes room on the terminal for a line of our own.
  void clear_progress() {
    if (progress_)
      progress_->clear();
  }

  const Job& job_;
  comm::World& world_;
  Log& log_;
  record::RunDirectory directory_;
  data::Split data_;
  Session session_;
  Saver saver_;
  std::optional<Journal> journal_;
  std::optional<Progress> progress_;  // rank 0 only
  SignalScope& signals_;
  Walltime walltime_;

  std::int64_t first_step_ = 1;
  std::int64_t saved_step_ = -1;  ///< the step of the newest checkpoint
  std::optional<double> first_validation_, last_validation_;
};

Trainer::Trainer(
    const Job& job, comm::World& world, Log& log, SignalScope& signals, double started_at)
    : job_(job),
      world_(world),
      log_(log),
      directory_(choose_directory(job, world), world),
      data_(open_data(job, directory_.file("tokens"), world, log)),
      session_(job, data_, world),
      saver_(job, session_.plan, session_.optimizer, *session_.device, world),
      signals_(signals),
      walltime_(job.run.walltime.value_or({}).seconds, started_at) {}

void Trainer::start() {
  std::optional<Saver::Resumed> resumed;
  {
    const timing::Span span(session_.recorder, timing::Name::checkpoint_read);
    resumed = saver_.load_newest(directory_.path(), log_);
  }
  if (resumed) {
    first_step_ = resumed->step + 1;
    session_.next_sample = resumed->next_sample;
    saved_step_ = resumed->step;
  } else {
    saver_.initialize(*session_.compute_stream);
  }
  if (first_step_ <= job_.run.steps)
    open_files(resumed ? std::optional(resumed->step) : std::nullopt);
}

void Trainer::open_files(std::optional<std::int64_t> resumed_step) {
  comm::on_first_rank(world_, [&] { log_.also_to_file(directory_.file("log.txt")); });
  journal_.emplace(job_, session_.plan, *session_.device, session_.dtype, directory_, resumed_step,
                   session_.recorder, world_);
  const auto count = [](std::int64_t number) { return count_text(static_cast<double>(number)); };
  log_.info(
      "{}: {} parameters in {} buckets, {} ranks over {}, {}, {} micro-steps of {} x {} tokens",
      job_.run.name, count(session_.plan.parameter_elements()), session_.plan.buckets().size(),
      world_.size(), session_.communicator->name(), name(session_.dtype),
      session_.batches.micro_steps(), session_.batches.micro_sequences, job_.shape.context);
  log_.info("data: {} training tokens, {} validation tokens", count(data_.train.num_tokens()),
            data_.validation ? count(data_.validation->num_tokens()) : "no");
  if (world_.rank() == 0)
    progress_.emplace(log_, terminal_listens(), first_step_, job_.run.steps,
                      model::flops_per_token(job_.shape));
}

StepOutcome Trainer::step(std::int64_t number) {
  const std::uint64_t allocated = session_.scratch.num_allocations();
  const auto outcome = session_.step(number, [&] {
    Requests requests = signals_.take();
    if (world_.rank() == 0 && walltime_.ends(timing::steady_seconds()))
      requests.stop = 1;
    return requests;
  });
  walltime_.step_took(outcome.seconds);
  const double rate = static_cast<double>(outcome.tokens) / outcome.seconds;
  journal_->step(
      {.step = number,
       .loss = outcome.loss,
       .grad_norm = outcome.grad_norm,
       .learning_rate = outcome.learning_rate,
       .tokens = static_cast<std::int64_t>(session_.next_sample) * job_.shape.context,
       .seconds = outcome.seconds,
       .tokens_per_s = rate,
       .flops_per_s = rate * model::flops_per_token(job_.shape),
       .exposed_s = session_.engine.exposed_seconds(),
       .allocations = static_cast<std::int64_t>(session_.scratch.num_allocations() - allocated)},
      session_.engine);
  if (progress_)
    progress_->step({number, outcome.loss, outcome.grad_norm, outcome.learning_rate,
                     outcome.seconds, static_cast<double>(outcome.tokens)});
  return outcome;
}

void Trainer::between_steps(std::int64_t number, const StepOutcome& outcome) {
  if (due(number, collect_every_steps))
    journal_->collect();
  if (due(number, job_.evaluate.every_steps))
    evaluate(number);
  if (due(number, job_.sample.every_steps))
    print_sample(number);
  if (due(number, job_.checkpoint.every_steps) || outcome.checkpoint || outcome.stop)
    save(number);
}

void Trainer::evaluate(std::int64_t step) {
  const auto loss = session_.evaluate();
  if (!loss)
    return;
  if (!first_validation_)
    first_validation_ = loss;
  last_validation_ = loss;
  journal_->validation(step, *loss);
  clear_progress();
  log_.info("step {:>6}/{}  validation loss {:.4f}", step, job_.run.steps, *loss);
}

void Trainer::print_sample(std::int64_t step) {
  const timing::Span span(session_.recorder, timing::Name::sample);
  session_.engine.wait_for_parameters();
  comm::on_first_rank(world_, [&] {
    const auto text =
        continue_text(session_.model, *session_.device,
                      {job_.sample.prompt, job_.sample.tokens, job_.sample.temperature,
                       static_cast<std::uint64_t>(job_.run.seed)},
                      session_.hooks, *session_.compute_stream);
    clear_progress();
    log_.info("sample after step {}:\n{}{}\n", step, for_terminal(job_.sample.prompt),
              for_terminal(text));
  });
}

void Trainer::save(std::int64_t step) {
  if (saved_step_ == step)
    return;
  const double begin = timing::steady_seconds();
  const auto saved = saver_.save(directory_.path(), step, session_.next_sample);
  const double seconds = timing::steady_seconds() - begin;
  session_.recorder.add(timing::Name::checkpoint_write, 0, begin, seconds);
  walltime_.checkpoint_took(seconds);
  saved_step_ = step;
  clear_progress();
  if (!saved.warning.empty())
    log_.warning("{}", saved.warning);
  log_.info("step {:>6}/{}  checkpoint {} ({} in {})", step, job_.run.steps, saved.directory,
            bytes_text(static_cast<double>(saved.bytes)), duration_text(seconds));
}

void Trainer::finish() {
  session_.engine.wait_for_parameters();
  progress_.reset();
  if (first_validation_ != last_validation_)
    log_.info("validation loss {:.4f} before, {:.4f} after", *first_validation_, *last_validation_);
  if (world_.rank() == 0)
    journal_->print_summary(log_);
  journal_->close(session_);
  log_.info("everything lies in {}: run.h5 (the record), log.txt, deck.resolved.yaml, checkpoints/",
            directory_.path());
}

ExitCode Trainer::run() {
  start();
  if (first_step_ > job_.run.steps) {
    log_.info(
        "the run in {} is finished: step {} of {}. To go on, raise run.steps; to start anew, name "
        "another run.directory",
        directory_.path(), first_step_ - 1, job_.run.steps);
    return ExitCode::done;
  }
  if (first_step_ == 1 && job_.evaluate.every_steps > 0)
    evaluate(0);
  for (std::int64_t number = first_step_; number <= job_.run.steps; ++number) {
    const StepOutcome outcome = step(number);
    between_steps(number, outcome);
    if (outcome.stop && number < job_.run.steps) {
      finish();
      log_.info(
          "stopped after step {} of {} behind a checkpoint; start the same command again to go on",
          number, job_.run.steps);
      return ExitCode::requeue;
    }
  }
  finish();
  return ExitCode::done;
}

}  // namespace

ExitCode train(
    const Job& job, comm::World& world, Log& log, SignalScope& signals, double started_at) {
  const int threads = choose_threads(job.run.threads, world);
  omp_set_num_threads(threads);
  for (const auto& [text, warning] : comm::describe(comm::gather_placement(world, threads)))
    warning ? log.warning("{}", text) : log.info("{}", text);
  return Trainer(job, world, log, signals, started_at).run();
}

}  // namespace trireme::train
