// SPDX-License-Identifier: Apache-2.0
#include "cli/under_mpi.hpp"

#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/build_info.hpp"
#include "base/error_line.hpp"
#include "base/on_exit.hpp"
#include "device/recorder.hpp"

#include "ops/matmul.hpp"

#include "comm/control/agreement.hpp"
#include "comm/control/together.hpp"

#include "session/scheduler.hpp"

#include "deck/survey.hpp"
#include "doctor/findings.hpp"

namespace trireme::cli {

record::NameValues build_facts() {
  const BuildInfo& build = build_info();
  return {{"software", "trireme"},
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
}

namespace {

/// Facts that must agree on all ranks: deck, overrides and build.
std::vector<comm::Fact> facts_of(const session::Job& job, const std::string& deck_path) {
  using Owner = comm::Fact::Owner;
  std::vector<comm::Fact> facts{{"deck", deck_path, Owner::user}};
  for (const auto& [path, value] : job.deck) facts.push_back({path, value, Owner::user});
  for (const auto& [name, version] : build_facts())
    facts.push_back({name, version, Owner::machine});
  return facts;
}

/// The deck's tokenizer, read by rank 0; null if it cannot be read, which parse() will report.
std::shared_ptr<const text::Tokenizer> read_tokenizer(comm::World& world,
                                                      const SharedDeck& shared,
                                                      const DeckArguments& arguments) {
  std::string serialized;
  if (world.rank() == 0) {
    const comm::World::AtWork work(world);
    try {
      std::vector<Diagnostic> ignored;
      const deck::Deck deck = deck::read(shared.bytes, arguments.path, arguments.overrides,
                                         *shared.circumstances.references, ignored);
      if (deck.places.readable("data.tokenizer"))
        serialized = deck::read_tokenizer(deck.config)->serialized();
    } catch (const UserError&) {
    } catch (const StorageError&) {
    }
  }
  serialized = world.broadcast(std::move(serialized), 0);
  return serialized.empty() ? nullptr : text::tokenizer_from(serialized);
}

/// Throws if MPI does not connect the processes (each would do the whole work in one directory), or
/// if their verbs, builds or options, except --threads, differ. with_deck() compares the decks.
void expect_one_job(comm::World& world, const Arguments& arguments) {
  if (std::string_view(arguments.verb) != "doctor")
    if (const auto finding = doctor::disconnected(doctor::launch_here(), world.size()))
      throw CommError("MPI", "connect the processes",
                      fmt::format("{}: {}", finding->text, finding->remedy));
  using Owner = comm::Fact::Owner;
  const BuildInfo& build = build_info();
  comm::expect_agreement(
      world,
      {{"verb", arguments.verb, Owner::user},
       {"trireme", fmt::format("{} {}", build.version, build.git_revision), Owner::machine}});
  std::vector<comm::Fact> options;
  for (const auto& [name, words] : arguments.options)
    if (name != "DECK" && name != "--threads")
      options.push_back({name, words, Owner::user});
  comm::expect_agreement(world, options);
}

/// Runs `action` and prints its error. Throws LostRank if the others continue without a rank.
ExitCode outcome(comm::World& world, const std::function<ExitCode(comm::World&)>& action) {
  try {
    return action(world);
  } catch (const UserError& mistake) {  // the same on all ranks
    if (world.rank() == 0)
      error_line("{}", mistake.what());
    // Not the user's, if the deck does not fit the ranks that are left.
    return world.lost.empty() ? ExitCode::user_error : ExitCode::environment;
  } catch (const std::exception& problem) {
    if (world.continues_after_loss && dynamic_cast<const comm::LostRank*>(&problem) != nullptr)
      throw;
    const Verdict verdict = verdict_of(problem);
    if (dynamic_cast<const comm::FailedElsewhere*>(&problem) ==
        nullptr)  // that rank prints its own error message
      for (const std::string& line : verdict.lines)
        error_line("[rank {} {}] {}", world.rank(), world.host(), line);
    const auto* outside = dynamic_cast<const EnvironmentError*>(&problem);
    try {
      if (outside != nullptr && outside->known_to_all())
        world.barrier();          // print the line before any rank aborts
    } catch (const CommError&) {  // the others do not wait for this rank
    }
    // Not with MPI_Finalize: HDF5 would try again to close files that a full disk kept open, and
    // crash.
    world.abort(verdict.code);
    return verdict.code;
  }
}

}  // namespace

std::shared_ptr<const text::Tokenizer> shared_tokenizer(comm::World& world,
                                                        const std::string& path) {
  return text::tokenizer_from(comm::from_first_rank(world, [&] {
    return (path == "bytes" ? text::byte_tokenizer() : text::load_tokenizer(path))->serialized();
  }));
}

ExitCode with_deck(comm::World& world,
                   const DeckArguments& arguments,
                   const std::function<ExitCode(SharedDeck&, Log&)>& action) {
  SharedDeck shared;
  shared.circumstances.ranks = world.size();
  shared.circumstances.cuda = build_info().has_cuda;
  shared.bytes = comm::from_first_rank(world, [&] { return deck::read_deck_file(arguments.path); });
  using Values = std::vector<std::pair<std::string, std::string>>;  // bytes of any encoding
  const auto references = comm::from_first_rank(world, [&] {
    const deck::References found = deck::references_in(shared.bytes, arguments.overrides);
    return Values(found.begin(), found.end());
  });
  shared.circumstances.references.emplace(references.begin(), references.end());
  shared.circumstances.tokenizer = read_tokenizer(world, shared, arguments);
  shared.circumstances.reads_weights = world.rank() == 0;
  comm::together(world, [&] {  // command lines, and mistakes in them, may differ
    shared.deck =
        deck::parse(shared.bytes, arguments.path, arguments.overrides, shared.circumstances);
  });
  world.set_deadline(shared.deck.config.parallel.deadline.seconds);
  shared.job = deck::job_of(shared.deck);
  shared.job.build = build_facts();
  comm::expect_agreement(world, facts_of(shared.job, arguments.path));
  Log log(world.rank() == 0, fmt::format("rank {} {}", world.rank(), world.host()));
  for (const auto& [reference, value] : *shared.circumstances.references)
    log.info("{}: {}", reference, value);
  try {
    try {
      return action(shared, log);
    } catch (const UserError& mistake) {
      deck::settle(shared.deck.places.placed(mistake.findings()), arguments.overrides);
      throw;
    }
  } catch (const std::exception& problem) {  // users look into log.txt for the reason
    for (const std::string& line : verdict_of(problem).lines) log.only_to_file(line);
    throw;
  }
}

ExitCode under_mpi(Arguments arguments, const std::function<ExitCode(comm::World&)>& action) {
  const comm::MpiScope mpi(arguments.argc, arguments.argv);
  auto world = comm::make_mpi_world();
  ExitCode code = outcome(*world, [&](comm::World& ranks) {
    expect_one_job(ranks, arguments);
    return ExitCode::done;
  });
  if (code != ExitCode::done)
    return code;
  bool lost = false;
  do {  // once more, on the ranks that are left, whenever one is lost
    lost = false;
    try {
      code = outcome(*world, action);
    } catch (const comm::LostRank&) {
      lost = true;
    }
  } while (world->continues_after_loss && comm::replace_after_loss(world, lost));
  return code;
}

ExitCode with_deck_until_stopped(
    Arguments arguments,
    const std::string& work,
    const DeckArguments& deck,
    const std::function<ExitCode(comm::World&, const SharedDeck&, Log&)>& action) {
  const double started_at = device::steady_seconds();
  session::SignalScope signals(work);  // install before MPI starts threads
  return under_mpi(arguments, [&](comm::World& world) {
    // An immediate end of the run ends all ranks.
    signals.end_by(world.rank(), [&world](ExitCode code) { world.abort(code); });
    const OnExit alone([&signals] {  // after an error, launchers send signals that nobody meant
      signals.end_by(0, nullptr);
      signals.training_begins();
    });
    return with_deck(world, deck, [&](SharedDeck& shared, Log& log) {
      shared.signals = &signals;
      std::optional<session::JobClock> clock;
      if (world.rank() == 0) {
        constexpr Duration no_limit{std::numeric_limits<double>::infinity()};
        clock.emplace(started_at + shared.job.run.walltime.value_or(no_limit).seconds, signals,
                      [&log](const std::string& warning) { log.warning("{}", warning); });
      }
      return action(world, shared, log);
    });
  });
}

}  // namespace trireme::cli
