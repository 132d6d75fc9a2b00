// SPDX-License-Identifier: Apache-2.0
// The verb that searches for a learning rate.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_find_rate(CLI::App& command);

}  // namespace trireme::cli
