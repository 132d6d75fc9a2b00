// SPDX-License-Identifier: Apache-2.0
// The cross-checks of parallel.shard: gradients and parameters, and of parallel.replicate. Their
// buckets are reduced in every micro-step as soon as backward is through with them, and with
// parameters no rank has a whole model. Copies divide the ranks equally, and leave something in
// shards.
#pragma once

#include "deck/findings.hpp"

namespace trireme::deck {

void check_shard(const JobConfig& config, const Circumstances& circumstances, Findings& findings);

}  // namespace trireme::deck
