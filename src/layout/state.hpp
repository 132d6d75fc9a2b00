// SPDX-License-Identifier: Apache-2.0
// What an optimizer keeps for every element that it updates: state slots, each one fp32 number. The
// optimizer names them; budget, checkpoint, proof and plan go through the list and know none.
//
// Slot 0 is the master weight. In fp32 runs that is the parameter itself and takes no memory of its
// own.
#pragma once

#include <string>
#include <vector>

namespace trireme::layout {

struct StateSlot {
  std::string name;   ///< in checkpoints: "master", "moment1"
  std::string label;  ///< for people: "master weights", "first moments"
};

using StateSlots = std::vector<StateSlot>;

}  // namespace trireme::layout
