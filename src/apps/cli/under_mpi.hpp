// SPDX-License-Identifier: Apache-2.0
// What every verb needs that runs on all ranks of an MPI job: MPI's beginning and end, one verdict
// for all ranks, and a deck that is the same on all of them.
#pragma once

#include <functional>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "record/run/name_values.hpp"

#include "session/job.hpp"
#include "session/stop.hpp"

#include "cli/options.hpp"
#include "cli/verb.hpp"
#include "deck/deck.hpp"

namespace trireme::cli {

/// Name and version of what this build is made of, for records and checkpoints.
record::NameValues build_facts();

/// `action` between MPI's beginning and end. Prints mistakes on rank 0 and failures on the rank
/// where they occur; a failure that the other ranks cannot notice ends the whole job. Throws before
/// `action` where MPI does not connect the processes that the launcher started (except for doctor,
/// which reports it), or where they were started with other verbs or builds.
ExitCode under_mpi(Arguments arguments, const std::function<ExitCode(comm::World&)>& action);

/// What ends work from outside, and when the process started, by the steady clock.
struct Stops {
  session::SignalScope& signals;
  double started_at;
};
/// The same, of work that signals and time limits end. `work`: as SignalScope's.
ExitCode under_mpi_until_stopped(Arguments arguments,
                                 const std::string& work,
                                 const std::function<ExitCode(comm::World&, const Stops&)>& action);

/// `action` with the checked deck: rank 0 reads the deck's bytes, every rank parses the same bytes
/// with the overrides of its own command line. Throws UserError or CommError where ranks were
/// started with other decks, overrides or builds.
ExitCode with_deck(comm::World& world,
                   const DeckArguments& arguments,
                   const std::function<ExitCode(const session::Job&, Log&)>& action);

/// A checked deck on all ranks, for verbs that look at other values of its keys.
struct SharedDeck {
  std::string bytes;
  deck::Circumstances circumstances;
  deck::Deck deck;
};

/// The same with the deck itself.
ExitCode with_shared_deck(comm::World& world,
                          const DeckArguments& arguments,
                          const std::function<ExitCode(const SharedDeck&, Log&)>& action);

}  // namespace trireme::cli
