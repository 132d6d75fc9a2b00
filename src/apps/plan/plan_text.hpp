// SPDX-License-Identifier: Apache-2.0
// A deck's plan as a table for people and as JSON for programs.
#pragma once

#include <string>

#include "base/json.hpp"

#include "plan/deck_plan.hpp"

namespace trireme::plan {

/// The bucket table and the bytes per rank, for people.
std::string plan_text(const DeckPlan& plan);
/// The same numbers, and more digits of them, for programs. `scaling`: as scaling_json() gives it;
/// null: none.
std::string plan_json(const DeckPlan& plan, const Json& scaling = {});

}  // namespace trireme::plan
