// SPDX-License-Identifier: Apache-2.0
// Links with made-up prices for tests.
#pragma once

#include <cstdint>

#include "plan/machine.hpp"

namespace trireme::plan {

/// Every operation takes `latency_s` and `seconds_per_byte`; the exchanges of a step 10 and 20 us.
inline Link priced_link(comm::Transport transport,
                        std::int64_t ranks,
                        std::int64_t hosts,
                        double latency_s,
                        double seconds_per_byte) {
  Link link{{.transport = transport, .ranks = ranks, .hosts = hosts}, {}};
  link.sums_s = 1e-5;
  link.control_s = 2e-5;
  for (const auto& [operation, name] : EnumNames<Operation>::table)
    link.collectives.push_back({.operation = operation,
                                .latency_s = latency_s,
                                .seconds_per_byte = seconds_per_byte,
                                .points = {}});
  return link;
}

}  // namespace trireme::plan
