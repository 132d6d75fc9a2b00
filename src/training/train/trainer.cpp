// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include <algorithm>
#include <filesystem>
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

#include "inference/generate.hpp"
#include "inference/next_logits.hpp"
#include "session/host_memory.hpp"
#include "session/machine.hpp"
#include "train/epochs.hpp"
#include "train/record_start.hpp"
#include "train/resume.hpp"
#include "train/run.hpp"
#include "train/slow_ranks.hpp"
#include "train/spikes.hpp"

namespace trireme::train {
namespace {

/// Rate for one rank's part of a checkpoint before the first one: a busy shared file system.
constexpr double assumed_bytes_per_s = 50e6;

class Trainer : Run {
 public:
  using Run::Run;

  ExitCode run(MeasureCeiling measure_ceiling);

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

  template <class... Args>
  void say(std::int64_t step, fmt::format_string<Args...> text, Args&&... args) {
    clear_progress();
    log.info("step {:>6}/{}  {}", step, job.run.steps,
             fmt::format(text, std::forward<Args>(args)...));
  }
  /// Rank 0: logs `line` as a warning, unless it is empty.
  void warn(std::int64_t step, const std::string& line) {
    if (world.rank() != 0 || line.empty())
      return;
    clear_progress();
    log.warning("step {:>6}/{}  {}", step, job.run.steps, line);
  }
  [[nodiscard]] session::Requests requests();
  [[nodiscard]] comm::Wanted stop_is_wanted() {
    return [this] { return requests().stop().has_value(); };
  }

  [[nodiscard]] bool due(std::int64_t step, std::int64_t every) const {
    return every > 0 && (step % every == 0 || step == job.run.steps);
  }
  [[nodiscard]] bool checks_replicas(std::int64_t step, bool saves) const {
    const auto& when = job.parallel.check_replicas;
    return (when.at_checkpoints && (saves || step == first_step)) ||
           (when.every_steps > 0 && step % when.every_steps == 0);
  }
  /// Tokens of all steps of the run after this one.
  [[nodiscard]] double tokens_after(std::int64_t step) const {
    const std::int64_t samples = training.sizes.until(job.run.steps) - training.sizes.until(step);
    return static_cast<double>(samples * job.shape.context);
  }

  const double flops_per_token_ = model::flops_per_token(job.shape);  // builds all layers
  MeasureCeiling measure_ceiling_ = nullptr;
  /// Steps; 0: no copies in memory.
  const std::int64_t memory_every_ =
      session::keeps_memory_copies(job, world.size()) ? job.checkpoint.memory_every_steps : 0;
  session::Walltime walltime_;
  double slowest_copy_s_ = 0;  ///< in memory
  SlowRanks slow_ranks_{world, training.energy, training.device->kind() == device::Kind::cpu};
  Spikes spikes_;             ///< on rank 0
  bool time_is_up_ = false;   ///< on rank 0: a time limit was found to leave too little time
  bool interrupted_ = false;  ///< an evaluation or a sample was dropped: a stop is requested
  bool dropped_ = false;      ///< an evaluation, which the next start makes up

  /// The last step enqueued, and what is known of it before its results are read.
  struct Enqueued {
    std::int64_t step = 0, tokens = 0, allocations = 0;
    bool seen = true;
  } newest_;
  double saved_at_ = device::steady_seconds();  ///< when the newest checkpoint was begun
  std::optional<record::ValidationRow> first_validation_, last_validation_;
};

session::Requests Trainer::step(std::int64_t number) {
  const std::uint64_t allocated = training.scratch.num_allocations();
  const auto first_sample = static_cast<std::int64_t>(training.next_sample);
  const session::Requests agreed = training.enqueue(number, [&] {
    session::Requests mine = requests();
    mine.checkpoint = signals.take_checkpoint() ? 1 : 0;
    if (world.rank() == 0 && job.checkpoint.every_minutes > 0 &&
        device::steady_seconds() - saved_at_ >= 60 * job.checkpoint.every_minutes)
      mine.checkpoint = 1;
    mine.writing = saver.writing() ? 1 : 0;
    mine.more = slow_ranks_.words();
    return mine;
  });
  for (const std::string& line : slow_ranks_.look(number)) warn(number, line);
  look();
  for (const std::string& line : training.device->take_notes())
    if (world.rank() == 0) {
      clear_progress();
      log.warning("{}", line);
    }
  const auto next_sample = static_cast<std::int64_t>(training.next_sample);
  for (const std::string& line : epochs_ended(data.train, first_sample, next_sample))
    say(number, "{}", line);
  if (const std::int64_t sequences = training.sizes.at(number);
      number > first_step && sequences != training.sizes.at(number - 1))
    say(number, "the batch is {} sequences now, in {} micro-steps", sequences,
        training.batches(number).micro_steps());
  newest_ = {number, (next_sample - data.train.skips().count(next_sample)) * job.shape.context,
             static_cast<std::int64_t>(training.scratch.num_allocations() - allocated), false};
  training.record_for(number);
  // The engine keeps the times of two updates only.
  if (agreed.unfinished == 0 || job.optimizer.outer.on())
    look();
  return agreed;
}

session::Requests Trainer::requests() {
  session::Requests mine;
  if (const auto reason = signals.stop())
    mine.stop_for(*reason);
  // An evaluation that was interrupted for it has ended, even if the limit is moved afterwards.
  time_is_up_ = time_is_up_ ||
                (world.rank() == 0 &&
                 walltime_.ends(signals.deadline() - device::steady_seconds(), saver.under_way()));
  if (time_is_up_)
    mine.stop_for(session::StopReason::time_limit);
  return mine;
}

void Trainer::look() {
  if (newest_.seen)
    return;
  newest_.seen = true;
  const session::StepOutcome outcome = training.outcome(newest_.step);
  const double rate = static_cast<double>(outcome.tokens) / outcome.seconds;
  const double waited = journal->step({.step = newest_.step,
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
  if (!job.optimizer.outer.on())  // waits between local steps are not known
    slow_ranks_.measured(outcome.optimizer_began - outcome.began - waited,
                         training.batches(newest_.step));
  if (outcome.leaf_norm_squared && outcome.not_finite.empty()) {
    const std::int64_t sequences = training.sizes.at(newest_.step);
    journal->append(noise_scale->add(
        newest_.step, {sequences / job.parallel.logical_shards.value_or(1), sequences},
        *outcome.leaf_norm_squared, outcome.grad_norm * outcome.grad_norm));
  }
  if (outcome.not_finite.empty()) {
    if (!outcome.norms.empty())
      journal->norms(newest_.step, outcome.norms);
    if (world.rank() == 0)
      warn(newest_.step, spikes_.look(newest_.step, outcome.grad_norm, outcome.norms));
  } else {
    journal->append(record::SkippedRow{newest_.step, outcome.not_finite});
    warn(newest_.step, "skipped: the gradient was not finite: " + outcome.not_finite);
  }
  if (progress)
    progress->step(newest_.step, outcome, tokens_after(newest_.step),
                   noise_scale ? noise_scale->tokens() : record::not_known);
}

void Trainer::between_steps(std::int64_t number) {
  const bool pauses = due(number, job.evaluate.every_steps) ||
                      due(number, job.sample.every_steps) || (sets && sets->due(number));
  if (pauses || due(number, collect_every_steps))
    look();
  if (due(number, collect_every_steps)) {
    expect_in_place();
    journal->collect(number);
  }
  if (due(number, job.evaluate.every_steps))
    evaluate(number);
  if (sets && sets->due(number))
    evaluate_sets(number);
  if (due(number, job.sample.every_steps))
    print_sample(number);
  if (pauses)
    training.energy.begin();
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
  log.info("{} was dropped, because the run is about to stop", what);
  return false;
}

void Trainer::evaluate(std::int64_t step) {
  std::optional<session::Evaluation> found;
  if (!interruptible("the validation", [&] { found = training.evaluate(stop_is_wanted()); })) {
    dropped_ = true;
    return journal->dropped(step, true);
  }
  last_validation_ = {step, found->loss, found->bits_per_byte};
  if (!first_validation_)
    first_validation_ = last_validation_;
  journal->append(*last_validation_);
  say(step, "validation loss {:.4f}{}", found->loss, bits_text(found->bits_per_byte));
}

void Trainer::evaluate_sets(std::int64_t step) {
  const device::Span span(training.recorder, device::SpanName::evaluate);
  std::vector<EvaluationSets::Result> results;
  if (!interruptible("the evaluation of evaluate.sets",
                     [&] { results = sets->evaluate(step, training, stop_is_wanted()); })) {
    dropped_ = true;
    return journal->dropped(step, false);
  }
  for (const auto& result : results) {
    journal->append(result.set->name, result.of, result.row);
    say(step, "{}: {}", result.set->name, result.text);
  }
}

void Trainer::print_sample(std::int64_t step) {
  const device::Span span(training.recorder, device::SpanName::sample);
  training.engine.wait_for_parameters();
  // All ranks gather what the model reads, token by token, where none has it whole. Then they end
  // the sample together; otherwise the first rank is alone with it.
  const bool before = interrupted_, alone = !training.engine.parameters_share_slots();
  comm::Interruption interruption(world, stop_is_wanted());
  const auto drawn = [&](std::size_t /*text*/, std::int32_t /*token*/) {
    if (!alone)
      interruption.check();
    else if (requests().stop())
      throw comm::Interrupted();
  };
  const text::Tokenizer& tokenizer = *job.tokenizer;
  const auto print = [&] {
    if (job.shape.vocabulary < tokenizer.vocabulary())
      throw UserError(
          fmt::format("the model's vocabulary of {} is smaller than the tokenizer's {} tokens",
                      job.shape.vocabulary, tokenizer.vocabulary()));
    // A model that trains has no memory to spare for kept keys and values.
    inference::NextLogits logits(training.model, *training.device, training.hooks,
                                 *training.compute_stream);
    const inference::GenerateRequest request{
        inference::prompt_tokens(tokenizer, job.sample.prompt, false, tokenizer.end_of_text())};
    const auto generated =
        inference::generate(logits, {&request, 1},
                            {.tokens = job.sample.tokens,
                             .distribution = {.temperature = job.sample.temperature},
                             .seed = static_cast<std::uint64_t>(job.run.seed),
                             .alphabet = tokenizer.vocabulary()},
                            drawn);
    if (world.rank() != 0)
      return;
    clear_progress();
    log.info("sample after step {}:\n{}{}\n", step, job.sample.prompt,
             inference::decoded(tokenizer, generated.at(0).tokens));
  };
  const auto print_if_not_interrupted = [&] { interruptible("the sample", print); };
  if (alone)
    comm::on_first_rank(world, print_if_not_interrupted);
  else
    comm::together(world, print_if_not_interrupted);
  if (alone)  // only the first rank knows whether it dropped the sample
    interrupted_ = before;
}

record::NameValues Trainer::facts_now() const {
  record::NameValues facts;
  if (noise_scale)
    facts.emplace_back(noise_scale_fact, noise_scale->packed());
  if (const std::int64_t skipped = training.optimizer.skipped_in_a_row(newest_.step); skipped > 0)
    facts.emplace_back(skipped_fact, std::to_string(skipped));
  return facts;
}

void Trainer::copy_to_memory(std::int64_t step) {
  const double begin = device::steady_seconds();
  const device::Span span(training.recorder, device::SpanName::checkpoint_stall);
  journal->flush(world.local_size() < world.size());  // the host of rank 0 may be lost
  saver.copy_to(copies, step, facts_now());
  slowest_copy_s_ = std::max(slowest_copy_s_, device::steady_seconds() - begin);
}

void Trainer::save(std::int64_t step, bool wait) {
  if (saver.under_way())
    note(saver.finish());
  if (saved_step == step)
    return;
  expect_in_place();
  journal->flush();
  saver.begin(step, facts_now());
  saved_step = step;
  saved_at_ = device::steady_seconds();
  if (wait || !job.checkpoint.asynchronous)
    note(saver.finish());
}

void Trainer::note(const session::Saver::Saved& saved) {
  journal->checkpoint(saved);
  if (world.rank() != 0)  // rank 0 has what was saved, and when to end
    return;
  walltime_.checkpoint_took(saved.needed_s);
  clear_progress();
  for (const std::string& warning : saved.files.warnings) log.warning("{}", warning);
  const auto bytes = static_cast<double>(saved.files.bytes);
  say(saved.step, "checkpoint {} ({} in {}, {}/s; training was paused for {})",
      saved.files.directory, bytes_text(bytes), duration_text(saved.files.seconds),
      bytes_text(bytes / saved.files.seconds), duration_text(saved.stall_s));
}

void Trainer::finish(bool whole) {
  if (saver.under_way())
    note(saver.finish());
  training.engine.wait_for_parameters();
  expect_in_place();
  progress.reset();
  if (first_validation_ && first_validation_->step < last_validation_->step)
    log.info("validation loss: {:.4f} at step {}, {:.4f} at step {}", first_validation_->loss,
             first_validation_->step, last_validation_->loss, last_validation_->step);
  if (world.rank() == 0)
    journal->print_summary();
  if (const auto stop = session::agree(world, requests()).stop(); whole && stop)
    log.info("skipped measuring what matrix products reach on this machine: {}",
             signals.text_of(*stop));
  else if (whole)
    journal->compare_with_ceiling(measure_ceiling_);
  journal->close(newest_.step, saver, whole);
  std::error_code ignored;
  const bool saved = world.rank() == 0 && std::filesystem::exists(directory.checkpoints(), ignored);
  log.info(
      "all files are in {}: run.h5 and steps.jsonl (the record), log.txt, deck.resolved.yaml{}",
      directory.path(), saved ? ", checkpoints/" : "");
}

ExitCode Trainer::run(MeasureCeiling measure_ceiling) {
  measure_ceiling_ = measure_ceiling;
  start();
  if (finished) {
    comm::on_first_rank(world, [&] { complete_run_file(directory.path(), log); });
    log.info("the run in {} is finished: {}; to start over, name another run.directory",
             directory.path(),
             first_step > job.run.steps
                 ? fmt::format("step {} of {}. To continue, raise run.steps", first_step - 1,
                               job.run.steps)
                 : fmt::format("steps.jsonl holds all {} steps, and the deck asks for no "
                               "checkpoint of the last. It cannot continue",
                               job.run.steps));
    return ExitCode::done;
  }
  walltime_.expect_checkpoint(
      static_cast<double>(layout::snapshot_bytes(training.plan, training.optimizer.slots())) /
      assumed_bytes_per_s);
  try {
    return steps();
  } catch (const UserError&) {  // on all ranks alike: what was saved before the mistake stays saved
    if (saver.under_way())
      note(saver.finish());
    throw;
  }
}

void Trainer::evaluate_at_start() {
  newest_.step = first_step - 1;
  const bool initial = first_step == 1;
  if (job.evaluate.every_steps > 0 && (initial || journal->owes_validation()))
    evaluate(newest_.step);
  if (sets && (initial || journal->owes_evaluation()))
    evaluate_sets(newest_.step);
}

ExitCode Trainer::stopped(session::StopReason reason, const std::string& advice) {
  finish(false);
  log.info("stopped after step {} of {}: {}. {}", newest_.step, job.run.steps,
           signals.text_of(reason), advice);
  return session::code_of(reason);
}

ExitCode Trainer::steps() {
  evaluate_at_start();
  if (dropped_) {
    const auto reason = session::agree(world, requests()).stop().value();
    if (reason != session::StopReason::time_limit)
      return stopped(reason, "Run the same command again to resume");
    finish(false);  // the next start would get no further
    throw UserError(fmt::format("no step was made: {}. Raise this limit, or evaluate less.",
                                signals.text_of(reason)));
  }
  training.energy.begin();
  for (std::int64_t number = first_step; number <= job.run.steps; ++number) {
    const double begin = device::steady_seconds();
    const session::Requests agreed = step(number);
    auto stops_for = agreed.stop();
    const bool last = number == job.run.steps;
    bool saves = due(number, job.checkpoint.every_steps) || agreed.checkpoint > 0 || stops_for ||
                 (last && job.checkpoint.regular());
    if (saver.under_way() && agreed.writing == 0)
      if (const auto saved = saver.advance())
        note(*saved);
    const bool remembers = due(number, memory_every_) && !last;
    if (saves || remembers || last)
      look();
    const bool checked = checks_replicas(number, saves);
    if (checked) {
      look();
      training.check_replicas(number);
    }
    // What else is between steps can be interrupted, so it needs no time of its own before the end.
    if (!signals.take_suspension())
      walltime_.step_took(device::steady_seconds() - begin + slowest_copy_s_);
    interrupted_ = stops_for.has_value();
    between_steps(number);
    if (interrupted_ && !stops_for) {
      look();
      stops_for = session::agree(world, requests()).stop();
      saves = true;
      if (!checked && checks_replicas(number, true))
        training.check_replicas(number);
    }
    if (saves)
      save(number, stops_for || last);
    if (remembers && !stops_for)
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

ExitCode train(const session::Job& job,
               comm::World& world,
               Log& log,
               session::SignalScope& signals,
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
  return Trainer(job, world, log, signals, copies).run(measure_ceiling);
}

}  // namespace trireme::train
