// SPDX-License-Identifier: Apache-2.0
// The verbs that take the directories of finished runs: speed.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_speed(CLI::App& command);

}  // namespace trireme::cli
