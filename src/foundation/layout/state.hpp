// SPDX-License-Identifier: Apache-2.0
// What an optimizer keeps for the elements that it updates: state slots, each one number per
// element. The optimizer names them; budget, checkpoint, proof and plan go through the list and
// depend on none by name.
//
// 1. Slot 0 is the master weight. In fp32 runs that is the parameter itself and takes no memory of
//    its own.
// 2. A slot of all parameters lies as the shards do, one after another, padding included. One that
//    hidden matrices do not have holds the pieces of the other parameters, in the same order, each
//    from a multiple of 16 elements; so how much of it a rank keeps depends on what it owns.
// 3. The master is fp32. Other slots are fp32 or bf16, each as a whole.
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

  [[nodiscard]] bool has(const Parameter& parameter) const {
    return of_matrices || parameter.matrices.empty();
  }
};

using StateSlots = std::vector<StateSlot>;

/// Where the elements of every bucket begin in a rank's memory of a slot, and as the last number
/// how many there are. Without a rank: of an optimizer that is not sharded, whose ranks hold
/// everything.
std::vector<std::int64_t> slot_begins(const Plan& plan,
                                      const StateSlot& slot,
                                      std::optional<int> rank);

/// Where the pieces of one bucket lie in that memory; -1: nowhere. `begin` is the bucket's of
/// slot_begins(), and `pieces` are those that the rank updates, in their order.
std::vector<std::int64_t> places_in_slot(const Plan& plan,
                                         const StateSlot& slot,
                                         std::int64_t begin,
                                         const std::vector<Piece>& pieces);

/// The most that a rank keeps of a slot, in elements and in bytes.
std::int64_t most_slot_elements(const Plan& plan, const StateSlot& slot, bool sharded);
std::int64_t most_slot_bytes(const Plan& plan, const StateSlot& slot, bool sharded);

}  // namespace trireme::layout
