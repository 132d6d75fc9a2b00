// SPDX-License-Identifier: Apache-2.0
// `trireme tune DECK`: finds the setting (candidates.hpp) with the shortest step of the deck on the
// ranks and hosts where it is started (docs/design/apps.md, "Search for the fastest settings").
// Settings that need too much memory are dropped.
//
// 1. Settings do not change what is trained. Those that may change rounding are marked, and
//    excluded by --same-bits.
// 2. All ranks take part in every measurement and get the same times, so they decide alike.
// 3. No run directory is used. Text is encoded into a temporary token cache, unless data.cache is
//    given. Weights are random.
// 4. Only for CPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "deck/deck.hpp"
#include "tune/candidates.hpp"

namespace trireme::tune {

struct TuneRequest {
  double seconds = 120;           ///< approximate time; a few steps are measured in any case
  std::int64_t memory_bytes = 0;  ///< limit per rank; 0: a share of the free memory of its host
  bool same_bits = false;         ///< exclude settings that may change rounding
};

/// A setting that was run, with the seconds of a step by round.
struct Run {
  Candidate candidate;
  std::vector<double> seconds;
  Ratio ratio;
};

/// The repetition of the best setting against the deck's own.
struct Repeated {
  std::size_t run = 0;  ///< index in Tuning::runs
  std::vector<double> seconds, own_seconds;
  Ratio ratio;
};

struct Tuning {
  int ranks = 1, hosts = 1;
  std::string processor;
  std::int64_t memory_bytes = 0;  ///< limit per rank
  std::size_t tried = 0, too_large = 0;
  std::vector<Run> runs;  ///< the deck's own first
  std::optional<Repeated> repeated;

  [[nodiscard]] const Run& chosen() const {
    const bool better = repeated && confirms(repeated->seconds, repeated->own_seconds);
    return better ? runs[repeated->run] : runs.front();
  }
};

/// Collective. `circumstances` are those with which the deck was checked. The result is the same on
/// every rank. Throws UserError for GPUs, and if the deck's own values do not fit into memory.
Tuning tune(const deck::Deck& deck,
            const deck::Circumstances& circumstances,
            comm::World& world,
            Log& log,
            const TuneRequest& request);

}  // namespace trireme::tune
