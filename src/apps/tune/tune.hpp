// SPDX-License-Identifier: Apache-2.0
// `trireme tune DECK`: the setting (setting.hpp) with which the deck's step is shortest on the
// ranks and hosts that it is started on.
//
//   measure  this machine, as `bench reduce --fit` does: every transport that works here, and the
//            deck's step at several micro-batches, each with the least recomputation that fits:
//            of all blocks, or of as few as the memory demands
//   predict  the step and the memory of every setting; those that need too much are left out
//   run      the few with the shortest predicted steps beside the deck's own, in rounds
//   choose   by what was measured, and never something that is not measurably better (choice.hpp)
//
// 1. What is trained stays the same; a setting that may round otherwise is marked, and left out on
//    demand.
// 2. Every rank takes part in everything, and the first rank decides: lists and choices are
//    broadcast.
// 3. Nothing is written: no run directory is made or looked at. Text is encoded into a temporary
//    token cache, unless data.cache names a place for one. Weights are random ones.
// 4. CPUs only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "deck/deck.hpp"
#include "plan/machine.hpp"
#include "tune/candidates.hpp"
#include "tune/choice.hpp"

namespace trireme::tune {

struct TuneRequest {
  double seconds = 120;           ///< about how long; longer where a few steps take longer
  std::int64_t memory_bytes = 0;  ///< that a rank may take; 0: its part of what hosts have free
  bool same_bits = false;         ///< leave out what may round otherwise
};

/// A setting that was run; seconds of a step, by round.
struct Run {
  Candidate candidate;
  std::vector<double> seconds;
  Ratio ratio;
};

/// The best of them and the deck's own, once more.
struct Repeated {
  std::size_t run = 0;  ///< in Tuning::runs
  std::vector<double> seconds, own_seconds;
  Ratio ratio;
};

struct Tuning {
  int ranks = 1, hosts = 1;
  plan::Machine machine;
  std::int64_t memory_bytes = 0;  ///< that a rank may take
  std::size_t predicted = 0, too_large = 0;
  std::vector<Run> runs;  ///< the deck's own first
  std::optional<Repeated> repeated;

  /// What to train with.
  [[nodiscard]] const Run& chosen() const {
    const bool better = repeated && confirms(repeated->seconds, repeated->own_seconds);
    return better ? runs[repeated->run] : runs.front();
  }
};

/// `circumstances`: what the deck was checked against. Collective; the same on every rank, but for predictions in the last bits where processors
/// differ. Throws UserError for GPUs, and where the deck's own values do not fit the memory.
Tuning tune(const deck::Deck& deck,
            const deck::Circumstances& circumstances,
            comm::World& world,
            Log& log,
            const TuneRequest& request);

}  // namespace trireme::tune
