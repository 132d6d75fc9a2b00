// SPDX-License-Identifier: Apache-2.0
// The lines with which a run begins in its log: model, ranks, choices, devices, data.
#pragma once

#include <cstdint>

#include "base/log.hpp"

#include "session/job.hpp"
#include "session/session.hpp"

namespace trireme::train {

/// Collective.
void log_opening_lines(const session::Job& job,
                       session::Session& session,
                       std::int64_t first_step,
                       Log& log);

}  // namespace trireme::train
