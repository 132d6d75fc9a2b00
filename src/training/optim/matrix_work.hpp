// SPDX-License-Identifier: Apache-2.0
// What the hidden matrices of Muon cost in a step, where each is orthogonalized, and in which
// rounds. Pure arithmetic, the same on every rank.
//
// A round is the matrices of one bucket. Rounds come in the order in which buckets are updated, the
// last of the layout first. A rank orthogonalizes the matrices of its homes round by round. It
// waits for a round's pieces to be back, to update their bucket, when the rank that needs longest
// for the rounds until then should be done with them and their travel has had some time: a rank
// that has less to do in these rounds goes on with its later ones. So no rank waits for another
// while it has products left, as long as all multiply at the same pace.
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
  std::vector<double> flops;  ///< by home rank
};

/// Memory, FLOP and bytes sent for the matrices of a step.
struct MatrixWork {
  layout::Ownership homes;
  std::vector<MatrixRound> rounds{};
  bool travels = false;            ///< sharded, on several ranks
  std::int64_t matrices = 0;       ///< in the model
  std::int64_t held_elements = 0;  ///< fp32, allocated on each rank for whole matrices
  std::int64_t scratch_bytes = 0;  ///< of each rank
  double flops = 0;                ///< of all matrices, once
  double busiest_flops = 0;        ///< of the rank with the most work
  std::int64_t sent_bytes = 0;     ///< in both directions, by the rank that sends most

  [[nodiscard]] std::int64_t bytes() const;
};

/// Nothing for optimizers that need no whole matrices.
std::optional<MatrixWork> matrix_work(const layout::Plan& plan,
                                      const OptimizerConfig& config,
                                      bool sharded);

/// Bytes of matrices sent to other hosts in a step, in both directions, by the host that sends
/// most.
std::int64_t matrix_bytes_between(const comm::Hosts& hosts,
                                  const layout::Plan& plan,
                                  const MatrixWork& work);

/// For each round the last one that `rank` orthogonalizes before it waits for that round's pieces:
/// the next one, or as many more as it has done when the busiest rank is through that round.
std::vector<std::size_t> rounds_before_updates(std::span<const MatrixRound> rounds, int rank);

}  // namespace trireme::optim
