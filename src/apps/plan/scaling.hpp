// SPDX-License-Identifier: Apache-2.0
// `trireme plan DECK --ranks N,… --machine FILE`: predicts the time of a step of the deck on these
// numbers of ranks, from measured costs (plan/machine.hpp) and the plan of each number of ranks.
//
//   weak    the micro-steps per rank that the deck has on the first number of ranks: the batch
//           grows with the ranks
//   strong  the deck's batch, if it can be split
//
// A row states its basis: measured on this number of ranks, extrapolated from another, or not
// known, because nothing of the kind was measured or because the replicas of parallel.replicate do
// not fit this number of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"

#include "deck/deck.hpp"
#include "plan/machine.hpp"
#include "plan/step.hpp"

namespace trireme::plan {

struct ScalingRow {
  int ranks = 1, hosts = 1;
  std::string missing;                ///< why there are no times: a sentence
  bool links_carried_over = false;    ///< communication was measured on other ranks
  bool compute_carried_over = false;  ///< so is compute, on a host
  bool compute_estimated = false;     ///< compute is of another model, by FLOP
  bool encoding_left_out = false;     ///< of compressed gradients, only the bytes are predicted
  std::int64_t weak_sequences = 0;    ///< per step
  std::optional<StepPrediction> weak, strong;
  std::optional<std::int64_t> memory_bytes;  ///< of a rank
  std::optional<double> checkpoint_s;
  std::optional<double> memory_copy_s;  ///< of checkpoint.memory_every_steps
};

struct Scaling {
  std::int64_t sequences = 0, context = 0;  ///< of the deck's step
  std::vector<ScalingRow> rows;
};

/// Of one number of ranks. `weak_micro_steps`: of a rank's step when the batch grows with them.
ScalingRow scaling_row(const deck::Deck& deck,
                       const Machine& machine,
                       int ranks,
                       int hosts,
                       std::int64_t weak_micro_steps);

/// One row per number in `ranks`, of which the first is that of the deck's batch. A single number
/// is put among the powers of two up to 4096. `hosts`: of the first number; 1: the machine file
/// gives the ranks per host.
Scaling scaling_of(const deck::Deck& deck,
                   const Machine& machine,
                   std::vector<int> ranks,
                   int hosts);

std::string scaling_text(const Scaling& scaling);
/// A list of rows: ranks, hosts, weak, strong (step_s, exposed_s, compute_s, communication_s,
/// least_s, tokens_per_s, sent_bytes by a rank for gradients and parameters), memory_bytes,
/// checkpoint_s, memory_copy_s; null where not known.
Json scaling_json(const Scaling& scaling);

}  // namespace trireme::plan
