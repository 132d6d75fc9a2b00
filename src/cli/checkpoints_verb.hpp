// SPDX-License-Identifier: Apache-2.0
// The verb checkpoints: what lies in a run directory, and whether it is as it was written.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_checkpoints(CLI::App& command);

}  // namespace trireme::cli
