// SPDX-License-Identifier: Apache-2.0
// Cross-checks of parallel.shard: gradients and parameters, and of parallel.replicate. With these,
// each bucket is reduced in every micro-step as soon as its gradients are complete, and with
// parameters no rank has a whole model. Replicas must divide the ranks equally.
#pragma once

#include "deck/findings.hpp"

namespace trireme::deck {

void check_shard(const JobConfig& config, const Circumstances& circumstances, Findings& findings);

}  // namespace trireme::deck
