// SPDX-License-Identifier: Apache-2.0
// A deck's plan as a table for people and as JSON for programs, and how often a run goes through
// its data.
#pragma once

#include <string>

#include "base/json.hpp"

#include "plan/deck_plan.hpp"

namespace trireme::plan {

/// The bucket table and the bytes per rank, for people.
std::string plan_text(const DeckPlan& plan);
/// The same numbers for programs, with more digits. `scaling`: of scaling_json(), or null.
std::string plan_json(const DeckPlan& plan, const Json& scaling = {});

/// A line for each source with its share of the run's tokens, its own tokens and the epochs, as far
/// as they are known: the headers of token files and the sizes of text are read, nothing else. A
/// source that cannot be read here says why.
std::string data_text(const deck::JobConfig& config, std::int64_t context);

}  // namespace trireme::plan
