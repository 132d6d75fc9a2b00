// SPDX-License-Identifier: Apache-2.0
// Which directory a run uses when the one that the deck names may hold a finished run.
#pragma once

#include <string>

#include "comm/control/world.hpp"

#include "session/job.hpp"

namespace trireme::train {

/// Whether the run in `path` has made all its steps: by its newest checkpoint, or by its record
/// where the deck asks for no checkpoints.
bool is_finished(const session::Job& job, const std::string& path);

/// The run directory, or the first of DIRECTORY-2, DIRECTORY-3, … that is not finished if the deck
/// asks for a new run in that case. Collective.
std::string choose_directory(const session::Job& job, comm::World& world);

}  // namespace trireme::train
