// SPDX-License-Identifier: Apache-2.0
#include "main_train.hpp"

#include <map>
#include <optional>

#include "base/build_info.hpp"
#include "base/error_line.hpp"
#include "base/log.hpp"

#include "comm/agreement.hpp"
#include "comm/together.hpp"
#include "comm/world.hpp"
#include "ops/matmul.hpp"
#include "timing/recorder.hpp"

#include "train/trainer.hpp"

#include "job/deck.hpp"
#include "job/survey.hpp"

#include "verify/verify.hpp"

namespace trireme {
namespace {

std::string as_text(const job::Value& value) {
  return std::visit([](const auto& v) { return job::yaml_text(v); }, value);
}

train::Job job_of(const job::Deck& deck, const model::GptShape& shape) {
  const job::JobConfig& c = deck.config;
  train::Job job{c.run,           shape,    c.data,       c.batch,    c.optimizer, c.parallel,
                 c.memory,        c.record, c.checkpoint, c.evaluate, c.sample,    {},
                 job::echo(deck), {}};
  const std::map<std::string, std::int64_t> sizes{{"model.layers", shape.layers},
                                                  {"model.heads", shape.heads},
                                                  {"model.channels", shape.channels},
                                                  {"model.context", shape.context},
                                                  {"model.vocabulary", shape.vocabulary}};
  for (const job::Entry& entry : job::survey(c)) {
    const auto size = sizes.find(entry.path);  // what a preset or the tokenizer filled in
    job.deck.emplace_back(
        entry.path, size == sizes.end() ? as_text(entry.value) : job::yaml_text(size->second));
    job.rules.push_back(entry.change);
  }
  const BuildInfo& build = build_info();
  job.build = {{"software", "trireme"},
               {"software_version", build.version},
               {"git_sha1", build.git_revision},
               {"compiler", build.compiler},
               {"build_type", build.build_type},
               {"mpi", comm::mpi_version()},
               {"hdf5", build.hdf5},
               {"onednn", ops::onednn_version()},
               {"cuda", build.cuda},
               {"cudnn", build.cudnn},
               {"nccl", build.nccl}};
  return job;
}

/// What every rank read from its own command line, and what it is made of.
std::vector<comm::Fact> facts_of(const train::Job& job,
                                 const char* verb,
                                 const std::string& deck_path) {
  using Owner = comm::Fact::Owner;
  std::vector<comm::Fact> facts{{"verb", verb, Owner::user}, {"deck", deck_path, Owner::user}};
  for (const auto& [path, value] : job.deck) facts.push_back({path, value, Owner::user});
  for (const auto& [name, version] : job.build) facts.push_back({name, version, Owner::machine});
  return facts;
}

}  // namespace

ExitCode with_deck(comm::World& world,
                   const char* verb,
                   const std::string& deck_path,
                   const std::vector<std::string>& overrides,
                   const std::function<ExitCode(const train::Job&, Log&)>& action) {
  std::string bytes;
  comm::on_first_rank(world, [&] { bytes = job::read_deck_file(deck_path); });
  bytes = world.broadcast(std::move(bytes), 0);
  std::optional<job::Deck> deck;
  comm::together(world, [&] {  // command lines, and so mistakes in them, may differ
    deck = job::parse(bytes, deck_path, overrides,
                      job::Circumstances{world.size(), build_info().has_cuda});
  });
  world.limit_waiting(deck->config.parallel.deadline.seconds);
  const model::GptShape shape = job::shape_of(deck->config);
  const train::Job job = job_of(*deck, shape);
  comm::expect_agreement(world, facts_of(job, verb, deck_path));
  Log log(world.rank() == 0, fmt::format("rank {} {}", world.rank(), world.host()));
  try {
    return action(job, log);
  } catch (const std::exception& problem) {  // log.txt is where people look for why a run ended
    for (const std::string& line : verdict_of(problem).lines) log.only_to_file(line);
    throw;
  }
}

ExitCode under_mpi(int& argc, char**& argv, const std::function<ExitCode(comm::World&)>& action) {
  const comm::MpiScope mpi(argc, argv);
  const auto world = comm::make_mpi_world();
  try {
    return action(*world);
  } catch (const UserError& mistake) {  // the same on all ranks
    if (world->rank() == 0)
      error_line("{}", mistake.what());
    return ExitCode::user_error;
  } catch (const std::exception& problem) {
    const Verdict verdict = verdict_of(problem);
    if (dynamic_cast<const comm::FailedElsewhere*>(&problem) ==
        nullptr)  // that rank speaks for itself
      for (const std::string& line : verdict.lines)
        error_line("[rank {} {}] {}", world->rank(), world->host(), line);
    const auto* outside = dynamic_cast<const EnvironmentError*>(&problem);
    if (outside != nullptr && outside->known_to_all())
      world->barrier();  // the line is out before anybody ends the job
    // Not by way of MPI_Finalize: it would let HDF5 close once more what a full disk kept it from
    // closing, and crash in there.
    world->abort(verdict.code);
    return verdict.code;
  }
}

ExitCode train_command(int& argc,
                       char**& argv,
                       const std::string& deck_path,
                       const std::vector<std::string>& overrides) {
  const double started_at = timing::steady_seconds();
  train::SignalScope signals;  // before MPI starts threads
  return under_mpi(argc, argv, [&](comm::World& world) {
    return with_deck(world, "train", deck_path, overrides, [&](const train::Job& job, Log& log) {
      return train::train(job, world, log, signals, started_at);
    });
  });
}

ExitCode verify_command(int& argc,
                        char**& argv,
                        const std::string& deck_path,
                        const std::vector<std::string>& overrides,
                        std::int64_t steps) {
  return under_mpi(argc, argv, [&](comm::World& world) {
    return with_deck(world, "verify", deck_path, overrides, [&](const train::Job& job, Log& log) {
      const auto verified = verify::verify(job, world, log, {steps, {}});
      if (verified.difference.empty())
        return ExitCode::done;
      if (world.rank() == 0)
        error_line("error: combination {} differs: {}", verified.combinations, verified.difference);
      return ExitCode::contract;
    });
  });
}

}  // namespace trireme
