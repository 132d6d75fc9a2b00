// SPDX-License-Identifier: Apache-2.0
// The verb `tune`.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_tune(CLI::App& command);

}  // namespace trireme::cli
