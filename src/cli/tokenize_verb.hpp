// SPDX-License-Identifier: Apache-2.0
// The verb that makes shards of text.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_tokenize(CLI::App& command);

}  // namespace trireme::cli
