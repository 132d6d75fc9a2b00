// SPDX-License-Identifier: Apache-2.0
// The state of an optimizer: slots, each with one number per element. The optimizer defines the
// slots; budget, checkpoint, verify and plan iterate over the list.
//
// 1. Slot 0 is the master weight. In fp32 runs the parameter itself is the master, without further
//    memory.
// 2. A slot of all parameters has the layout of the shards, one after another, padding included. A
//    slot that hidden matrices do not have holds the pieces of the other parameters, in the same
//    order, each at a multiple of 16 elements; so its size depends on the parameters of a rank.
// 3. The master is fp32. Every other slot is fp32 or bf16.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "layout/plan.hpp"

namespace trireme::layout {

struct StateSlot {
  std::string name;         ///< in checkpoints: "master", "moment1"
  std::string label;        ///< for people: "master weights", "first moments"
  bool of_matrices = true;  ///< whether parameters with Parameter::matrices have it
  DType dtype = DType::f32;
  bool of_replica = false;  ///< every replica has its own values

  /// Name in checkpoints of this slot's values of one replica.
  [[nodiscard]] std::string saved_name(int replica) const {
    return of_replica && replica > 0 ? name + "-" + std::to_string(replica) : name;
  }
  [[nodiscard]] bool has(const Parameter& parameter) const {
    return of_matrices || parameter.matrices.empty();
  }
};

using StateSlots = std::vector<StateSlot>;

/// Start of every bucket in a rank's memory of a slot, followed by the number of elements. Without
/// a rank: for an optimizer that is not sharded, so every rank holds everything.
std::vector<std::int64_t> slot_begins(const Plan& plan,
                                      const StateSlot& slot,
                                      std::optional<int> rank);

/// Positions of the pieces of one bucket in that memory; -1: the piece has no state. `begin`: the
/// bucket's entry in slot_begins(). `pieces`: those that the rank updates, in order.
std::vector<std::int64_t> places_in_slot(const Plan& plan,
                                         const StateSlot& slot,
                                         std::int64_t begin,
                                         const std::vector<Piece>& pieces);

/// Size of a slot on a rank, in elements and in bytes; maximum over the ranks.
std::int64_t most_slot_elements(const Plan& plan, const StateSlot& slot, bool sharded);
std::int64_t most_slot_bytes(const Plan& plan, const StateSlot& slot, bool sharded);

}  // namespace trireme::layout
