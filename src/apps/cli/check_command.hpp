// SPDX-License-Identifier: Apache-2.0
// The work of `trireme check`, without the command line. It needs neither MPI nor a device, and
// throws UserError for mistakes in the deck.
#pragma once

#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace trireme::cli {

/// The value of the key `key` of the deck, with defaults and overrides, and a line end.
std::string value_of(const std::string& deck_path,
                     const std::vector<std::string>& overrides,
                     const std::string& key,
                     const deck::Circumstances& circumstances);

/// Reads and cross-checks a deck; returns a summary of the run in a few lines.
std::string check_command(const std::string& deck_path,
                          const std::vector<std::string>& overrides,
                          const deck::Circumstances& circumstances);

/// The same summary for a deck that was already checked.
std::string summary(const deck::Deck& deck, int ranks);

}  // namespace trireme::cli
