// SPDX-License-Identifier: Apache-2.0
// Warnings of an examination, with remedies: a pure function of the report, testable anywhere.
//
// A rank is slow below `slow_share` of the median of all ranks, since a step takes as long as its
// slowest rank. A pair of ranks is slow above `slow_pair` times the median latency or below the
// median bandwidth divided by `slow_pair`, more than a single disturbance causes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/report.hpp"

namespace trireme::doctor {

inline constexpr double slow_share = 0.85;
inline constexpr double slow_pair = 2;

struct Finding {
  std::string text;
  std::string remedy;
};

/// A finding if MPI connects fewer `ranks` than the launcher started: each would then run alone.
std::optional<Finding> disconnected(const Launch& launch, int ranks);

std::vector<Finding> findings_of(const Report& report);

}  // namespace trireme::doctor
