// SPDX-License-Identifier: Apache-2.0
// `trireme evaluate`: a trained model's loss and its answers to multiple choice.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_evaluate(CLI::App& command);

}  // namespace trireme::cli
