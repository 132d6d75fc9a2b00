// SPDX-License-Identifier: Apache-2.0
// What an examination found, and what to do about it: a pure function of the report, so that every
// finding has a test without the machine that it is about.
//
// A rank counts as slow below `slow_share` of the median of all ranks: a step takes as long as its
// slowest rank, so that all others wait for it. A pair of ranks counts as slow with `slow_pair` times
// the median's latency or its part of the median's bandwidth: what one disturbance does is less.
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

/// What is wrong when MPI connects `ranks` of the processes that a launcher started: fewer mean that
/// each does the work alone.
std::optional<Finding> disconnected(const Launch& launch, int ranks);

std::vector<Finding> findings_of(const Report& report);

}  // namespace trireme::doctor
