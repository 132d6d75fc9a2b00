// SPDX-License-Identifier: Apache-2.0
// `trireme doctor`: examines the machines of a job within a minute: their hardware, its speed, and
// problems for a run. It needs no deck, and runs alone or under mpirun. Users attach its output to
// questions.
//
// All ranks measure at the same time, since they compute at the same time. Matrix products are
// those of gpt2-124m's layers. It writes only a file without a name in `directory`, and first
// checks that it can. A measurement that fails is a problem of the report, and the others continue
// (attempts.hpp).
#pragma once

#include <string>

#include "base/key.hpp"

#include "comm/control/world.hpp"

#include "doctor/report.hpp"

namespace trireme::doctor {

struct Request {
  Or<std::int64_t> threads{.value = {}, .keyword = "auto"};  ///< as run.threads
  std::string directory = ".";                               ///< for checkpoints
};

/// Collective. Throws UserError if `directory` cannot be written, before the first measurement.
Report examine(comm::World& world, const Request& request);

}  // namespace trireme::doctor
