// SPDX-License-Identifier: Apache-2.0
// Formats the result of `trireme tune` as text, as JSON, and as comments in the deck it writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tune/tune.hpp"

namespace trireme::tune {

/// A table of the settings that were run, and the choice with its reason.
std::string tuning_table(const Tuning& tuning);

/// {"filetype": "trireme-tune", "version": [2, 0], "runs": […], "repeated": …, "chosen": …}.
std::string tuning_json(const Tuning& tuning);

/// The text of the deck with the values of the chosen setting, after a block of comments with the
/// result, which replaces that of an earlier tuning. Nothing if the layout of the deck does not allow
/// it. `build`: of this program; `overrides`: of the command line.
std::optional<std::string> tuned_deck(const Tuning& tuning,
                                      const std::string& bytes,
                                      const std::string& build,
                                      const std::vector<std::string>& overrides);

}  // namespace trireme::tune
