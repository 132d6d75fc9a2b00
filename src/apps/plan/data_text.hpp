// SPDX-License-Identifier: Apache-2.0
// How often a run goes through its data, known before it starts: the headers of token files and the
// sizes of text are read, nothing else.
#pragma once

#include <string>

#include "deck/deck.hpp"

namespace trireme::plan {

/// A line for each source with its share of the run's tokens, its own tokens and the epochs, as far
/// as they are known. A source that cannot be read here says why.
std::string data_text(const deck::JobConfig& config, std::int64_t context);

}  // namespace trireme::plan
