// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <omp.h>

#include "base/text.hpp"
#include "base/threads.hpp"
#include "files/path.hpp"
#include "layout/budget.hpp"

#include "comm/control/interruption.hpp"
#include "comm/control/placement.hpp"
#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/run/run_directory.hpp"
#include "record/run/run_requests.hpp"

#include "inference/text_sample.hpp"
#include "session/machine.hpp"
#include "session/saver.hpp"
#include "session/session.hpp"
#include "session/stop.hpp"
#include "train/epochs.hpp"
#include "train/evaluation_sets.hpp"
#include "train/journal.hpp"
#include "train/noise_scale.hpp"
#include "train/opening_lines.hpp"
#include "train/progress.hpp"
#include "train/record_start.hpp"
#include "train/resume.hpp"
#include "train/run_end.hpp"

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
          const session::TimeLimit& limit,
          MeasureCeiling measure_ceiling);
  ExitCode run();

 private:
  /// Initial values or the newest checkpoint, and the files of the run.
  void start();
  void open_files(const std::optional<Resumption>& before, const record::NameValues& origin);
  /// Step `number`, and the results of the one before.
  session::Requests step(std::int64_t number);
  /// Records and prints the step that is not recorded yet, if there is one. Collective.
  void look();
  /// What is due after step `number`, in the order of the header.
  void between_steps(std::int64_t number);
  /// Collective. Throws StorageError when what the run writes would be lost.
  void expect_in_place();
  void evaluate(std::int64_t step);
  void evaluate_sets(std::int64_t step);
  /// Runs `action`, which a request to stop interrupts. Returns whether it was finished.
  template <class Action>
  bool interruptible(const char* what, const Action& action);
  /// Evaluates before the first step: the initial state, or what the start before dropped.
  void evaluate_at_start();
  /// The end of a start that could not make the evaluations before its first step.
  ExitCode stop_at_start();
  void print_sample(std::int64_t step);
  /// Begins a checkpoint, after one that is under way, and waits for it where the run must.
  void save(std::int64_t step, bool wait);
  void note(const session::Saver::Saved& saved);
  /// `whole`: the run has made its last step, so there is time to measure the machine.
  void finish(bool whole);
  ExitCode steps();

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
    return (when.at_checkpoints && (saves || step == first_step_)) ||
           (when.every_steps > 0 && step % when.every_steps == 0);
  }
  /// Of all steps of the run after this one.
  [[nodiscard]] double tokens_after(std::int64_t step) const {
    const std::int64_t samples = session_.sizes.until(job_.run.steps) - session_.sizes.until(step);
    return static_cast<double>(samples * job_.shape.context);
  }
  /// Makes room on the terminal for a line of our own.
  void clear_progress() {
    if (progress_)
      progress_->clear();
  }

  const session::Job& job_;
  const double flops_per_token_ = model::flops_per_token(job_.shape);  // builds all layers
  comm::World& world_;
  Log& log_;
  record::RunDirectory directory_;
  std::unique_ptr<record::RunRequests> run_requests_;  // rank 0 only
  std::optional<record::RunDirectory> checkpoints_;    // where the deck has them elsewhere
  batches::Split data_;
  session::Session session_;
  session::Saver saver_;
  std::optional<Journal> journal_;
  std::optional<Progress> progress_;  // rank 0 only
  std::optional<Epochs> epochs_;
  std::optional<EvaluationSets> sets_;     // where the deck has any
  std::optional<NoiseScale> noise_scale_;  // where the deck asks for it
  session::SignalScope& signals_;
  const session::TimeLimit limit_;
  const MeasureCeiling measure_ceiling_;
  session::Walltime walltime_;
  bool interrupted_ = false;  ///< an evaluation or a sample was dropped: a stop is requested
  bool dropped_ = false;      ///< an evaluation, which the next start makes up

  bool finished_ = false;  ///< before it began: an earlier start made all its steps
  std::int64_t first_step_ = 1;
  /// The last step enqueued, and what is known of it before its results are read.
  struct Enqueued {
    std::int64_t step = 0, tokens = 0, allocations = 0;
    bool seen = true;
  } newest_;
  std::int64_t saved_step_ = -1;  ///< the step of the newest checkpoint, begun or done
  double saved_at_ = device::steady_seconds();  ///< when it was begun
  std::optional<double> first_validation_, last_validation_;
};

Trainer::Trainer(const session::Job& job,
                 comm::World& world,
                 Log& log,
                 session::SignalScope& signals,
                 const session::TimeLimit& limit,
                 MeasureCeiling measure_ceiling)
    : job_(job),
      world_(world),
      log_(log),
      directory_(choose_directory(job, world), world),
      run_requests_(listen(directory_, world, signals)),
      data_(session::open_data(job, directory_.file("tokens"), world, log)),
      session_(job, data_, world),
      saver_(job, session_.plan, session_.engine, session_.optimizer, *session_.device, world),
      signals_(signals),
      limit_(limit),
      measure_ceiling_(measure_ceiling),
      walltime_(limit.deadline) {}

void Trainer::start() {
  warn_unlocked(directory_, log_);
  comm::on_first_rank(world_, [&] { expect_known_checkpoints(directory_, job_); });
  if (!job_.checkpoint.directory.empty()) {
    comm::on_first_rank(world_, [&] {
      record::expect_place_of_checkpoints(job_.checkpoint.directory,
                                          job_.place_of("checkpoint.directory"));
    });
    checkpoints_.emplace(job_.checkpoint.directory, world_, "checkpoint.directory");
    warn_unlocked(*checkpoints_, log_);
    comm::on_first_rank(world_,
                        [&] { record::link_checkpoints(directory_.path(), checkpoints_->path()); });
  }
  std::optional<session::Saver::Resumed> resumed;
  {
    const device::Span span(session_.recorder, device::SpanName::checkpoint_read);
    resumed = saver_.load_newest(directory_.path(), log_, *session_.compute_stream);
  }
  if (resumed) {
    session_.check_replicas(resumed->facts.step);
    first_step_ = resumed->facts.step + 1;
    session_.next_sample = resumed->facts.next_sample;
    data_.train.continue_from(fact_of(resumed->facts.more, data_position_fact),
                              static_cast<std::int64_t>(session_.next_sample));
    saved_step_ = resumed->facts.step;
  }
  bool finished = false;
  comm::on_first_rank(world_, [&] { finished = is_finished(job_, directory_.path()); });
  finished_ = !world_.broadcast(finished ? "finished" : "", 0).empty();
  if (finished_)
    return;
  if (!job_.evaluate.sets.empty())
    sets_.emplace(job_, world_);
  std::optional<Resumption> before;
  record::NameValues origin;
  if (resumed) {
    before = Resumption::of(*resumed);
    origin = weights::origin_facts(resumed->facts.more);
    if (const std::string line = unread_weights(*before, job_); !line.empty())
      log_.info("{}", line);
  } else if (job_.run.initial_weights.empty()) {
    saver_.initialize(*session_.compute_stream);
  } else {
    origin = saver_.start_from_files(log_, *session_.compute_stream);
  }
  if (job_.evaluate.noise_scale.every_steps > 0) {
    noise_scale_.emplace(job_.shape.context, job_.evaluate.noise_scale.smoothing);
    if (resumed)
      noise_scale_->continue_from(fact_of(resumed->facts.more, noise_scale_fact),
                                  resumed->directory);
  }
  const std::string data_hash = fmt::format("{:016x}", batches::content_hash(data_));
  comm::on_first_rank(world_, [&] {
    if (before)
      expect_allowed(*before, job_, data_hash);
    directory_.set_id(choose_run_id(directory_, before, job_));
  });
  open_files(before, origin);
  record::NameValues more{{run_id_fact, directory_.id()},
                          {data_hash_fact, data_hash},
                          {data_position_fact, data_.train.position()},
                          {tokenizer_fact, tokenizer_text(job_)}};
  more.insert(more.end(), origin.begin(), origin.end());
  saver_.prepare(directory_.path(), std::move(more));
  walltime_.expect_checkpoint(
      static_cast<double>(layout::snapshot_bytes(session_.plan, session_.optimizer.slots())) /
      assumed_bytes_per_s);
}

void Trainer::open_files(const std::optional<Resumption>& before,
                         const record::NameValues& origin) {
  signals_.training_begins();  // from here on there is a record, which a stop must close
  comm::on_first_rank(world_, [&] {
    files::expect_writable_place(directory_.file("log.txt"));
    log_.also_to_file(directory_.file("log.txt"));
  });
  const auto resumed_step = before ? std::optional(before->step) : std::nullopt;
  journal_.emplace(job_, session_.shape, session_.plan, *session_.device, session_.dtype,
                   directory_, resumed_step, origin, session_.recorder, world_, log_);
  if (before && world_.rank() == 0) {
    for (const std::string& line : change_table(*before, job_)) log_.info("{}", line);
    if (const std::string warning = rate_jump(*before, job_); !warning.empty())
      log_.warning("{}", warning);
  }
  log_opening_lines(job_, session_, first_step_, log_);
  epochs_.emplace(data_.train, static_cast<std::int64_t>(session_.next_sample));
  const std::int64_t samples = session_.sizes.until(job_.run.steps);
  log_.info("{}", epochs_->forecast(samples));
  if (const std::string warning = epochs_->warning(samples); world_.rank() == 0 && !warning.empty())
    log_.warning("{}", warning);
  if (world_.rank() == 0)
    progress_.emplace(log_, terminal_listens(), first_step_, job_.run.steps, flops_per_token_);
}

session::Requests Trainer::step(std::int64_t number) {
  const std::uint64_t allocated = session_.scratch.num_allocations();
  const session::Requests agreed = session_.enqueue(number, [&] {
    session::Requests mine = requests();
    mine.checkpoint = signals_.take_checkpoint() ? 1 : 0;
    if (world_.rank() == 0 && job_.checkpoint.every_minutes > 0 &&
        device::steady_seconds() - saved_at_ >= 60 * job_.checkpoint.every_minutes)
      mine.checkpoint = 1;
    mine.writing = saver_.writing() ? 1 : 0;
    return mine;
  });
  look();
  for (const std::string& line : session_.device->take_notes())
    if (world_.rank() == 0) {
      clear_progress();
      log_.warning("{}", line);
    }
  for (const std::string& line : epochs_->passed(static_cast<std::int64_t>(session_.next_sample))) {
    clear_progress();
    log_.info("step {:>6}/{}  {}", number, job_.run.steps, line);
  }
  if (const std::int64_t sequences = session_.sizes.at(number);
      number > first_step_ && sequences != session_.sizes.at(number - 1)) {
    clear_progress();
    log_.info("step {:>6}/{}  the batch is {} sequences now, in {} micro-steps", number,
              job_.run.steps, sequences, session_.batches(number).micro_steps());
  }
  newest_ = {number, static_cast<std::int64_t>(session_.next_sample) * job_.shape.context,
             static_cast<std::int64_t>(session_.scratch.num_allocations() - allocated), false};
  session_.record_for(number);
  if (agreed.unfinished == 0)
    look();
  return agreed;
}

session::Requests Trainer::requests() {
  session::Requests mine;
  if (const auto reason = signals_.stop())
    mine.stop_for(*reason);
  if (world_.rank() == 0 && walltime_.ends(device::steady_seconds(), saver_.under_way()))
    mine.stop_for(limit_.reason);
  return mine;
}

void Trainer::look() {
  if (newest_.seen)
    return;
  newest_.seen = true;
  const session::StepOutcome outcome = session_.outcome(newest_.step);
  const double rate = static_cast<double>(outcome.tokens) / outcome.seconds;
  journal_->step({.step = newest_.step,
                  .loss = outcome.loss,
                  .bits_per_byte = outcome.bits_per_byte,
                  .grad_norm = outcome.grad_norm,
                  .learning_rate = outcome.learning_rate,
                  .tokens = newest_.tokens,
                  .seconds = outcome.seconds,
                  .tokens_per_s = rate,
                  .flops_per_s = rate * flops_per_token_,
                  .exposed_s = outcome.times.exposed_s,
                  .allocations = newest_.allocations},
                 outcome);
  if (outcome.leaf_norm_squared && outcome.not_finite.empty()) {
    const std::int64_t sequences = session_.sizes.at(newest_.step);
    journal_->noise_scale(noise_scale_->add(
        newest_.step, {sequences / job_.parallel.logical_shards.value_or(1), sequences},
        *outcome.leaf_norm_squared, outcome.grad_norm * outcome.grad_norm));
  }
  if (!outcome.not_finite.empty()) {
    journal_->skipped(newest_.step, outcome.not_finite);
    clear_progress();
    if (world_.rank() == 0)
      log_.warning("step {:>6}/{}  skipped: the gradient was not finite: {}", newest_.step,
                   job_.run.steps, outcome.not_finite);
  }
  if (progress_)
    progress_->step({.step = newest_.step,
                     .loss = outcome.loss,
                     .bits_per_byte = outcome.bits_per_byte,
                     .grad_norm = outcome.grad_norm,
                     .learning_rate = outcome.learning_rate,
                     .seconds = outcome.seconds,
                     .tokens = static_cast<double>(outcome.tokens),
                     .tokens_left = tokens_after(newest_.step),
                     .noise_scale = noise_scale_ ? noise_scale_->tokens() : unknown_noise_scale});
}

void Trainer::between_steps(std::int64_t number) {
  if (due(number, collect_every_steps) || due(number, job_.evaluate.every_steps) ||
      due(number, job_.sample.every_steps) || (sets_ && sets_->due(number)))
    look();
  if (due(number, collect_every_steps)) {
    expect_in_place();
    journal_->collect(number);
  }
  if (due(number, job_.evaluate.every_steps))
    evaluate(number);
  if (sets_ && sets_->due(number))
    evaluate_sets(number);
  if (due(number, job_.sample.every_steps))
    print_sample(number);
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
  clear_progress();
  log_.info("{} was dropped, because the run is about to stop", what);
  return false;
}

void Trainer::evaluate(std::int64_t step) {
  std::optional<session::Evaluation> found;
  if (!interruptible("the validation", [&] { found = session_.evaluate(stop_is_wanted()); })) {
    dropped_ = true;
    return journal_->dropped(step, true);
  }
  if (!first_validation_)
    first_validation_ = found->loss;
  last_validation_ = found->loss;
  journal_->validation(step, *found);
  clear_progress();
  log_.info("step {:>6}/{}  validation loss {:.4f}{}", step, job_.run.steps, found->loss,
            bits_text(found->bits_per_byte));
}

void Trainer::evaluate_sets(std::int64_t step) {
  const device::Span span(session_.recorder, device::SpanName::evaluate);
  std::vector<EvaluationSets::Result> results;
  if (!interruptible("the evaluation of evaluate.sets",
                     [&] { results = sets_->evaluate(step, session_, stop_is_wanted()); })) {
    dropped_ = true;
    return journal_->dropped(step, false);
  }
  for (const auto& result : results) {
    journal_->evaluation(result.set->name, result.of, result.row);
    clear_progress();
    log_.info("step {:>6}/{}  {}: {}", step, job_.run.steps, result.set->name, result.text);
  }
}

void Trainer::expect_in_place() {
  comm::on_first_rank(world_, [&] {
    directory_.expect_in_place();
    if (checkpoints_)
      checkpoints_->expect_in_place();
  });
}

void Trainer::print_sample(std::int64_t step) {
  const device::Span span(session_.recorder, device::SpanName::sample);
  session_.engine.wait_for_parameters();
  // All ranks gather what the model reads, token by token, where none has it whole. Then they end
  // the sample together; otherwise the first rank is alone with it.
  const bool before = interrupted_, alone = !session_.engine.parameters_share_slots();
  comm::Interruption interruption(world_, stop_is_wanted());
  const auto drawn = [&](std::size_t /*text*/, std::int32_t /*token*/) {
    if (!alone)
      interruption.check();
    else if (requests().stop())
      throw comm::Interrupted();
  };
  const auto print = [&] {
    const auto text =
        inference::continue_text(session_.model, *session_.device, *job_.tokenizer,
                                 {job_.sample.prompt, job_.sample.tokens, job_.sample.temperature,
                                  static_cast<std::uint64_t>(job_.run.seed)},
                                 session_.hooks, *session_.compute_stream, drawn);
    if (world_.rank() != 0)
      return;
    clear_progress();
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

void Trainer::save(std::int64_t step, bool wait) {
  if (saver_.under_way())
    note(saver_.finish());
  if (saved_step_ == step)
    return;
  expect_in_place();
  journal_->flush();
  record::NameValues now;
  if (noise_scale_)
    now.emplace_back(noise_scale_fact, noise_scale_->packed());
  saver_.begin(step, session_.next_sample, *session_.compute_stream, now);
  saved_step_ = step;
  saved_at_ = device::steady_seconds();
  if (wait || !job_.checkpoint.asynchronous)
    note(saver_.finish());
}

void Trainer::note(const session::Saver::Saved& saved) {
  journal_->checkpoint(saved);
  if (world_.rank() != 0)  // rank 0 has what was saved, and when to end
    return;
  walltime_.checkpoint_took(saved.needed_s);
  clear_progress();
  for (const std::string& warning : saved.files.warnings) log_.warning("{}", warning);
  const auto bytes = static_cast<double>(saved.files.bytes);
  log_.info("step {:>6}/{}  checkpoint {} ({} in {}, {}/s; training was paused for {})", saved.step,
            job_.run.steps, saved.files.directory, bytes_text(bytes),
            duration_text(saved.files.seconds), bytes_text(bytes / saved.files.seconds),
            duration_text(saved.stall_s));
}

void Trainer::finish(bool whole) {
  if (saver_.under_way())
    note(saver_.finish());
  session_.engine.wait_for_parameters();
  expect_in_place();
  progress_.reset();
  if (first_validation_ != last_validation_)
    log_.info("validation loss {:.4f} before, {:.4f} after", *first_validation_, *last_validation_);
  if (world_.rank() == 0)
    journal_->print_summary(log_);
  if (const auto stop = session::agree(world_, requests()).stop(); whole && stop)
    log_.info("skipped measuring what matrix products reach on this machine: {}",
              session::text_of(*stop));
  else if (whole)
    journal_->compare_with_ceiling(session_, measure_ceiling_, log_);
  journal_->close(newest_.step, session_, saver_, whole, log_);
  std::error_code ignored;
  const bool saved =
      world_.rank() == 0 && std::filesystem::exists(directory_.checkpoints(), ignored);
  log_.info(
      "all files are in {}: run.h5 and steps.jsonl (the record), log.txt, deck.resolved.yaml{}",
      directory_.path(), saved ? ", checkpoints/" : "");
}

ExitCode Trainer::run() {
  start();
  if (finished_)
    comm::on_first_rank(world_, [&] { complete_run_file(directory_.path(), log_); });
  if (finished_ && first_step_ <= job_.run.steps) {
    log_.info(
        "the run in {} is finished: steps.jsonl holds all {} steps, and the deck asks for no "
        "checkpoint "
        "of the last. To start over, name another run.directory",
        directory_.path(), job_.run.steps);
    return ExitCode::done;
  }
  if (finished_) {
    log_.info(
        "the run in {} is finished: step {} of {}. To continue, raise run.steps; to start over, "
        "name another run.directory",
        directory_.path(), first_step_ - 1, job_.run.steps);
    return ExitCode::done;
  }
  try {
    return steps();
  } catch (const UserError&) {  // on all ranks alike: what was saved before the mistake stays saved
    if (saver_.under_way())
      note(saver_.finish());
    throw;
  }
}

void Trainer::evaluate_at_start() {
  newest_.step = first_step_ - 1;
  const bool initial = first_step_ == 1;
  if (job_.evaluate.every_steps > 0 && (initial || journal_->owes_validation()))
    evaluate(newest_.step);
  if (sets_ && (initial || journal_->owes_evaluation()))
    evaluate_sets(newest_.step);
}

ExitCode Trainer::stop_at_start() {
  const auto stops_for = session::agree(world_, requests()).stop();
  finish(false);
  log_.info("stopped after step {} of {}: {}. Run the same command again to resume", newest_.step,
            job_.run.steps, session::text_of(stops_for.value()));
  return ExitCode::requeue;
}

ExitCode Trainer::steps() {
  evaluate_at_start();
  if (dropped_)
    return stop_at_start();
  for (std::int64_t number = first_step_; number <= job_.run.steps; ++number) {
    const double begin = device::steady_seconds();
    const session::Requests agreed = step(number);
    auto stops_for = agreed.stop();
    const bool last = number == job_.run.steps;
    bool saves = due(number, job_.checkpoint.every_steps) || agreed.checkpoint > 0 || stops_for ||
                 (last && job_.checkpoint.regular());
    if (saver_.under_way() && agreed.writing == 0)
      if (const auto saved = saver_.advance())
        note(*saved);
    if (saves || last)
      look();
    if (checks_replicas(number, saves)) {
      look();
      session_.check_replicas(number);
    }
    // What is between steps can be interrupted, so it needs no time of its own before the end.
    walltime_.step_took(device::steady_seconds() - begin);
    interrupted_ = stops_for.has_value();
    between_steps(number);
    if (interrupted_ && !stops_for) {
      look();
      stops_for = session::agree(world_, requests()).stop();
      saves = true;
    }
    if (saves)
      save(number, stops_for || last);
    if (stops_for && (!last || dropped_)) {
      finish(false);
      log_.info(
          "stopped after step {} of {}: {}. A checkpoint was saved; run the same command again to "
          "{}",
          number, job_.run.steps, session::text_of(*stops_for),
          last ? "make up the evaluation" : "resume");
      return ExitCode::requeue;
    }
  }
  finish(true);
  return ExitCode::done;
}

}  // namespace

ExitCode train(const session::Job& job,
               comm::World& world,
               Log& log,
               session::SignalScope& signals,
               double started_at,
               MeasureCeiling measure_ceiling) {
  std::string quota;
  const int threads = session::choose_threads(job.run.threads, world, &quota);
  comm::together(world, [&] { expect_threads(threads - 1); });
  omp_set_num_threads(threads);
  if (world.rank() == 0 && !quota.empty())
    log.info("{}", quota);
  const auto placement = comm::describe(comm::gather_placement(world, threads));
  for (const auto& [text, warning, remedy] : placement)
    if (world.rank() == 0)  // every rank has the same lines
      warning ? log.warning("{}: {}", text, remedy) : log.info("{}", text);
  return Trainer(job, world, log, signals, limit_of(job, started_at, world, log, signals),
                 measure_ceiling)
      .run();
}

}  // namespace trireme::train
