// SPDX-License-Identifier: Apache-2.0
// Runs a verb on all ranks of an MPI job, with the same deck and the same exit code.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "text/tokenizer.hpp"

#include "record/run/name_values.hpp"

#include "session/job.hpp"
#include "session/stop.hpp"

#include "cli/options.hpp"
#include "cli/verb.hpp"
#include "deck/deck.hpp"

namespace trireme::cli {

/// Names and versions of this build and its libraries, for records and checkpoints.
record::NameValues build_facts();

/// Runs `action` between MPI_Init and MPI_Finalize. Prints user errors on rank 0 and failures on
/// the rank where they occur; a failure on a single rank aborts the job. Before `action`, throws if
/// MPI does not connect the processes that the launcher started (except for doctor, which reports
/// it), or if their verbs, options or builds differ.
ExitCode under_mpi(Arguments arguments, const std::function<ExitCode(comm::World&)>& action);

/// The tokenizer in a file or directory, or of bytes, read by rank 0, on every rank.
std::shared_ptr<const text::Tokenizer> shared_tokenizer(comm::World& world,
                                                        const std::string& path);

struct SharedDeck {
  std::string bytes;
  deck::Circumstances circumstances;
  deck::Deck deck;
  session::Job job;
  session::SignalScope* signals = nullptr;  ///< of with_deck_until_stopped()
};

/// Runs `action` with the checked deck: rank 0 reads the deck's bytes, and every rank parses them
/// with the overrides of its own command line. Throws UserError or CommError if the ranks' decks,
/// overrides or builds differ.
ExitCode with_deck(comm::World& world,
                   const DeckArguments& arguments,
                   const std::function<ExitCode(SharedDeck&, Log&)>& action);

/// under_mpi() with with_deck(), for work that ends on a signal, run.walltime after the start of
/// the process, or shortly before the end of the scheduler's job. `work`: as for SignalScope.
ExitCode with_deck_until_stopped(
    Arguments arguments,
    const std::string& work,
    const DeckArguments& deck,
    const std::function<ExitCode(comm::World&, const SharedDeck&, Log&)>& action);

}  // namespace trireme::cli
