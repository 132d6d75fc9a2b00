// SPDX-License-Identifier: Apache-2.0
// A deck's plan as a table for people and as JSON for programs.
#pragma once

#include <string>

#include "plan/deck_plan.hpp"

namespace trireme::plan {

/// The bucket table and the bytes per rank, for people.
std::string plan_text(const DeckPlan& plan);
/// The same numbers, and more digits of them, for programs. `scaling`: as scaling_json() gives it;
/// empty: none.
std::string plan_json(const DeckPlan& plan, const std::string& scaling = "");

}  // namespace trireme::plan
