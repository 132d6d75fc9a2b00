// SPDX-License-Identifier: Apache-2.0
// Loads state from a checkpoint into the memory of a device.
#pragma once

#include <string>
#include <vector>

#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint.hpp"

namespace trireme::session {

class Session;

/// Collective. Fills `slabs`, in the memory of the session's device, from the checkpoint in
/// `directory`, and returns its facts. Throws as record::load_checkpoint().
record::CheckpointFacts load_slabs(const std::string& directory,
                                   std::vector<record::MutableSlab> slabs,
                                   Session& session,
                                   comm::World& world);

}  // namespace trireme::session
