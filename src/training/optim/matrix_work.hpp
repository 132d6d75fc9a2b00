// SPDX-License-Identifier: Apache-2.0
// The hidden matrices of Muon in a step: their cost, their owners and the rounds in which they are
// orthogonalized. Pure arithmetic, the same on every rank.
//
// A round is the matrices of one bucket. Rounds are in the order in which buckets are updated, the
// last bucket of the layout first. A rank orthogonalizes the matrices that it owns round by round.
// To update a bucket it waits until the pieces of the round were sent back. It does so when the
// rank with the most work in the rounds so far should have finished them; until then a rank with
// less work continues with later rounds. So no rank waits for another while it has products left,
// if all compute at the same speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "layout/ownership.hpp"
#include "layout/plan.hpp"

#include "comm/collective/hosts.hpp"

#include "optim/config.hpp"

namespace trireme::optim {

struct MatrixRound {
  BucketIndex bucket{};
  std::vector<double> flops;  ///< by owner
};

/// Memory, FLOP and bytes sent for the matrices of a step.
struct MatrixWork {
  layout::Ownership owners;
  std::vector<MatrixRound> rounds{};
  bool distributed = false;         ///< sharded, on several ranks
  std::int64_t matrices = 0;        ///< in the model
  std::int64_t owned_elements = 0;  ///< fp32, allocated on each rank for the matrices that it owns
  std::int64_t scratch_bytes = 0;   ///< of each rank
  double flops = 0;                 ///< of all matrices, once
  double busiest_flops = 0;         ///< of the rank with the most work
  std::int64_t sent_bytes = 0;      ///< in both directions; maximum over the ranks

  [[nodiscard]] std::int64_t bytes() const;
};

/// None for optimizers that need no whole matrices.
std::optional<MatrixWork> matrix_work(const layout::Plan& plan,
                                      const OptimizerConfig& config,
                                      bool sharded);

/// Bytes of matrices that a host sends to other hosts in a step, in both directions; maximum over
/// the hosts.
std::int64_t matrix_bytes_between(const comm::Hosts& hosts,
                                  const layout::Plan& plan,
                                  const MatrixWork& work);

/// For each round the last round that `rank` orthogonalizes before it waits for that round's
/// pieces: the next one, or a later one that it reaches before the busiest rank has finished that
/// round.
std::vector<std::size_t> rounds_before_updates(std::span<const MatrixRound> rounds, int rank);

}  // namespace trireme::optim
