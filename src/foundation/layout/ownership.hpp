// SPDX-License-Identifier: Apache-2.0
// Which rank owns which parameter. In an elementwise optimizer every rank updates its shards. An
// optimizer that needs whole matrices assigns each of their parameters to one rank, its owner: the
// other ranks send their pieces to the owner and receive them back. State, buckets, padding and
// checkpoints do not depend on it. Pure arithmetic, the same on every rank.
//
// 1. A parameter with a cost has exactly one owner; the others have none.
// 2. Owners are balanced by cost: the most expensive parameter first, each to the rank with the
//    smallest load so far, the lower rank of equals. So no rank has more than the mean plus one
//    parameter. Source: Graham, "Bounds on multiprocessing timing anomalies", 1969.
// 3. A rank's pieces of a parameter are Plan::find_pieces() of its shard.
#pragma once

#include <span>
#include <vector>

#include "base/index.hpp"
#include "layout/plan.hpp"

namespace trireme::layout {

/// A rank's piece of one parameter, which is sent to the owner of the parameter and back.
struct MatrixPiece {
  BucketIndex bucket{};
  Piece piece;
  int rank = 0;  ///< the rank whose shard contains the piece
  int owner = 0;
};

class Ownership {
 public:
  /// No parameter has an owner: every rank updates its shards.
  explicit Ownership(const Plan& plan);
  /// Parameters whose `cost` (FLOP of an update, any unit) is above 0 have an owner. Requires: one
  /// cost per parameter, none negative.
  Ownership(const Plan& plan, std::span<const double> cost);

  /// The owner's rank, or -1 if the parameter has no owner.
  [[nodiscard]] int owner(ParameterIndex parameter) const { return owners_[at(parameter)]; }
  /// Total cost of the parameters that a rank owns.
  [[nodiscard]] double load(int rank) const { return loads_[static_cast<std::size_t>(rank)]; }
  /// The pieces of `parameter` on all ranks, in the order of its elements; empty without an owner.
  [[nodiscard]] std::vector<MatrixPiece> pieces(const Plan& plan, ParameterIndex parameter) const;

 private:
  std::vector<int> owners_;
  std::vector<double> loads_;
};

/// The bucket in which an update first needs a hidden matrix (Parameter::matrices): the last bucket
/// that has one, since buckets are updated from the last to the first; the last bucket if there are
/// no matrices.
BucketIndex first_updated_with_matrices(const Plan& plan);

}  // namespace trireme::layout
