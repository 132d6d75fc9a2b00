// SPDX-License-Identifier: Apache-2.0
// `trireme sample`, also called `generate`: text from a trained model.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_sample(CLI::App& command);

}  // namespace trireme::cli
