// SPDX-License-Identifier: Apache-2.0
// The verbs that end with the deck: what they print, without the command line around them. They
// need neither MPI nor a device. Mistakes leave as UserError.
#pragma once

#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace trireme::cli {

/// `trireme check`: reads and cross-checks; gives the few lines that sum up the run.
std::string check_command(const std::string& deck_path,
                          const std::vector<std::string>& overrides,
                          const deck::Circumstances& circumstances);

/// The same few lines, of a deck that was checked.
std::string summary(const deck::Deck& deck, int ranks);

}  // namespace trireme::cli
