// SPDX-License-Identifier: Apache-2.0
// `trireme tokenizer …`: vocabularies from text. Alone or under mpirun, with the same files as
// result.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_tokenizer_train(CLI::App& command);

}  // namespace trireme::cli
