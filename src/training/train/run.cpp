// SPDX-License-Identifier: Apache-2.0
#include "train/run.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"
#include "files/path.hpp"

#include "comm/control/together.hpp"
#include "reduce/layout_options.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/run/run_log.hpp"

#include "session/machine.hpp"
#include "session/rank_memory.hpp"
#include "train/epochs.hpp"
#include "train/record_start.hpp"

namespace trireme::train {
namespace {

/// A server of NFS misses a lost client, and gives up its locks, after 90 s (Linux) or sooner.
record::LockWait lock_wait(Log& log) {
  return {.timeout = std::chrono::seconds(120),
          .say = [&log](const std::string& line) { log.info("{}", line); }};
}

/// Hands the requests of `trireme stop` and `trireme save` to `signals`; null on all ranks but 0.
std::unique_ptr<record::RunRequests> listen(const record::RunDirectory& directory,
                                            const comm::World& world,
                                            session::SignalScope& signals) {
  if (world.rank() != 0)
    return nullptr;
  return std::make_unique<record::RunRequests>(
      directory.path(), [&signals](record::RunRequest request) {
        switch (request) {
          case record::RunRequest::save:
            return signals.request_checkpoint();
          case record::RunRequest::stop:
            return signals.request_stop(session::StopReason::request);
          case record::RunRequest::stop_now:
            return signals.end_now(
                "`trireme stop --now` ended the run: the steps since the newest checkpoint are "
                "lost.");
        }
      });
}

/// The lines with which a run begins in its log: model, ranks, choices, devices, data. Collective.
void log_opening_lines(session::Session& session, std::int64_t first_step, Log& log) {
  const session::Job& job = session.job;
  const int copies = session.plan.replicas();
  log.info("{}: {} parameters in {} ({}), {}{} over {}, {}, {} of {} x {} tokens", job.run.name,
           count_text(session.plan.parameter_elements()),
           counted(std::ssize(session.plan.buckets()), "bucket"),
           reduce::bucket_text(job.parallel, session.plan), counted(session.world.size(), "rank"),
           copies > 1 ? fmt::format(" with {} copies", copies) : "", session.communicator->name(),
           name(session.dtype), counted(session.batches(first_step).micro_steps(), "micro-step"),
           job.batch.micro_sequences, job.shape.context);
  if (const Bytes* limit = job.shape.recompute.limit()) {
    const model::RecomputeChoice choice = session::decide_recompute(
        {job, session.shape, session.plan, {session.dtype, session.device->kind()}});
    log.info("model.recompute: {}: a rank takes {} of {}", model::recompute_text(choice.recompute),
             bytes_text(choice.bytes), bytes_text(limit->count));
  }
  if (const std::string& note = session.communicator->note(); !note.empty())
    session.choices.push_back(note);
  if (std::string why = session::why_no_memory_copies(job, session.world.size()); !why.empty())
    session.choices.push_back(std::move(why));
  if (session.world.rank() == 0)
    for (const std::string& line : session.choices) log.warning("{}", line);
  if (!session.without_graphs.empty())
    log.info("gpu.graphs: off: {}", session.without_graphs);
  for (const std::string& line : session::gpu_table(session.world, *session.device))
    log.info("{}", line);
  log.info("data: {} training tokens, {} validation tokens",
           count_text(session.data.train.num_tokens()),
           session.data.validation ? count_text(session.data.validation->num_tokens()) : "no");
}

}  // namespace

Run::Run(const session::Job& the_job,
         comm::World& ranks,
         Log& the_log,
         session::SignalScope& stops,
         session::MemoryCopies& in_memory)
    : job(the_job),
      world(ranks),
      log(the_log),
      signals(stops),
      copies(in_memory),
      directory(choose_directory(job, world), world, record::RunDirectory::run_key, lock_wait(log)),
      run_requests(listen(directory, world, signals)),
      data(session::open_data(job, directory.file("tokens"), world, log)),
      training(job, data, world),
      saver(training, world) {}

void Run::start() {
  warn_unlocked(directory, log);
  comm::on_first_rank(world, [&] {
    if (!job.checkpoint.directory.empty())
      record::expect_place_of_checkpoints(directory.path(), job.checkpoint.directory);
    record::expect_own_checkpoints(directory.path(), job.checkpoint.directory);
    expect_known_checkpoints(directory, job);
  });
  if (!job.checkpoint.directory.empty()) {
    checkpoints.emplace(job.checkpoint.directory, world, "checkpoint.directory", lock_wait(log));
    warn_unlocked(*checkpoints, log);
    comm::on_first_rank(world,
                        [&] { record::link_checkpoints(directory.path(), checkpoints->path()); });
  }
  std::optional<session::Saver::Saved> from_memory;
  if (job.checkpoint.memory_every_steps > 0)
    from_memory = saver.write_from(copies, directory.path(), log);
  if (session::keeps_memory_copies(job, world.size()))
    copies.choose_partners(world);
  else
    copies = {};
  const std::string data_hash = fmt::format("{:016x}", batches::content_hash(data));
  std::optional<Resumed> resumed;
  {
    const device::Span span(training.recorder, device::SpanName::checkpoint_read);
    resumed = saver.load_newest(directory.path(), log, [&](const Resumed& found) {
      if (!is_finished(job, directory.path()))
        expect_allowed(found, job, data_hash);
    });
  }
  if (resumed) {
    training.check_replicas(resumed->facts.step);
    first_step = resumed->facts.step + 1;
    training.next_sample = resumed->facts.next_sample;
    data.train.continue_from(fact_of(resumed->facts.more, data_position_fact),
                             static_cast<std::int64_t>(training.next_sample));
    saved_step = resumed->facts.step;
    training.optimizer.continue_skips(saved_step, skipped_in_a_row(*resumed));
  }
  bool all_steps = false;
  comm::on_first_rank(world, [&] { all_steps = is_finished(job, directory.path()); });
  finished = !world.broadcast(all_steps ? "finished" : "", 0).empty();
  if (finished)
    return;
  if (!job.evaluate.sets.empty())
    sets.emplace(job, world, log);
  record::NameValues origin;
  if (resumed) {
    origin = weights::origin_facts(resumed->facts.more);
    if (const std::string line = unread_weights(*resumed, job); !line.empty())
      log.info("{}", line);
  } else if (job.run.initial_weights.empty()) {
    saver.initialize();
  } else {
    origin = saver.start_from_files(log);
  }
  if (job.evaluate.noise_scale.every_steps > 0) {
    noise_scale.emplace(job.shape.context, job.evaluate.noise_scale.smoothing);
    if (resumed)
      noise_scale->continue_from(fact_of(resumed->facts.more, noise_scale_fact),
                                 resumed->directory);
  }
  comm::on_first_rank(world, [&] { directory.set_id(choose_run_id(directory, resumed)); });
  open_files(resumed, origin, data_hash);
  if (from_memory)
    journal->checkpoint(*from_memory);
  record::NameValues more{{run_id_fact, directory.id()},
                          {data_hash_fact, data_hash},
                          {data_position_fact, data.train.position()},
                          {tokenizer_fact, tokenizer_text(job)}};
  more.insert(more.end(), origin.begin(), origin.end());
  if (sets)
    std::ranges::move(sets->hashes(resumed ? resumed->facts.more : record::NameValues(), log),
                      std::back_inserter(more));
  saver.prepare(directory.path(), std::move(more));
}

void Run::open_files(const std::optional<Resumed>& resumed,
                     const record::NameValues& origin,
                     const std::string& data_hash) {
  signals.training_begins();  // from here on there is a record, which a stop must close
  comm::on_first_rank(world, [&] {
    const std::string path = directory.file("log.txt");
    files::expect_writable_place(path);
    const bool foreign =
        files::exists(path) && !files::exists(directory.file(record::run_log_name));
    const std::string aside = foreign ? record::move_aside(path, "earlier") : "";
    log.also_to_file(path,
                     [&ranks = world] { return std::make_shared<comm::World::AtWork>(ranks); });
    if (foreign)
      log.warning("{} was here before this run. It was moved to {}", path, aside);
  });
  if (!world.lost.empty() && world.rank() == 0)
    log.warning("{} was lost: the run continues on {} ranks", world.lost, world.size());
  const auto resumed_step = resumed ? std::optional(resumed->facts.step) : std::nullopt;
  journal.emplace(training, directory, resumed_step, origin, log);
  if (resumed && world.rank() == 0) {
    for (const std::string& line : change_table(*resumed, job, data_hash)) log.info("{}", line);
    if (const std::string warning = rate_jump(*resumed, job); !warning.empty())
      log.warning("{}", warning);
  }
  log_opening_lines(training, first_step, log);
  const auto next_sample = static_cast<std::int64_t>(training.next_sample);
  const std::int64_t samples = data.train.skips().after(
      next_sample, training.sizes.until(job.run.steps) - training.sizes.until(first_step - 1));
  log.info("{}", epochs_text(data.train, samples));
  if (const std::string warning = epochs_warning(data.train, samples);
      world.rank() == 0 && !warning.empty())
    log.warning("{}", warning);
  if (world.rank() == 0)
    progress.emplace(log, terminal_listens(), first_step, job.run.steps,
                     model::flops_per_token(job.shape));
}

void Run::expect_in_place() {
  comm::on_first_rank(world, [&] {
    directory.expect_in_place();
    if (checkpoints)
      checkpoints->expect_in_place();
  });
}

}  // namespace trireme::train
