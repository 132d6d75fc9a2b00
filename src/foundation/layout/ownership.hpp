// SPDX-License-Identifier: Apache-2.0
// Which rank updates what. Elements: every rank updates the shards that it owns, enough for an
// elementwise optimizer. Whole parameters: an optimizer that needs matrices has the pieces of
// a parameter brought together on one rank, its home, and sent back; state, buckets, padding and
// checkpoints stay as they are. Pure arithmetic, the same on every rank.
//
// 1. Every parameter that needs it has exactly one home; the others have none.
// 2. Homes are balanced by cost: the most expensive parameter first, each to the rank that has the
//    least so far, the lower rank of equals. So no rank has more than the mean plus one parameter.
//    Source: Graham, "Bounds on multiprocessing timing anomalies", 1969.
// 3. A rank's pieces of a parameter are Plan::pieces of its shard; a piece on the home stays there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "layout/plan.hpp"

namespace trireme::layout {

/// A rank's part of one parameter that travels to its home and back.
struct HomePiece {
  BucketIndex bucket{};
  Piece piece;
  int rank = 0;  ///< where it lies
  int home = 0;
};

class Ownership {
 public:
  /// All parameters by elements.
  explicit Ownership(const Plan& plan);
  /// Whole parameters where `cost` (FLOP of an update, any unit) is above 0, elements elsewhere.
  /// Requires: one cost per parameter, none negative.
  Ownership(const Plan& plan, std::span<const double> cost);

  /// -1: by elements.
  [[nodiscard]] int home(ParameterIndex parameter) const { return homes_[at(parameter)]; }
  /// Of a rank's homes, in the unit of the costs.
  [[nodiscard]] double load(int rank) const { return loads_[static_cast<std::size_t>(rank)]; }
  /// The pieces of `parameter` on all ranks, in its own order; empty without a home.
  [[nodiscard]] std::vector<HomePiece> pieces(const Plan& plan, ParameterIndex parameter) const;

 private:
  std::vector<int> homes_;
  std::vector<double> loads_;
};

/// Where an update comes to the first hidden matrix (Parameter::matrices): the last bucket of the
/// layout that has one, since buckets are updated from the last to the first; the last of all where
/// none has. Buckets after it need no matrix.
BucketIndex first_updated_with_matrices(const Plan& plan);

}  // namespace trireme::layout
