// SPDX-License-Identifier: Apache-2.0
// `trireme doctor`: what the machines of a job are, what they reach, and what would hinder a
// run, within a minute. Alone or under mpirun, without a deck: what a user attaches to a question.
//
// All ranks measure at the same time, since they compute at the same time. Matrix products are
// those of gpt2-124m's layers. The only thing written is a file without a name in the directory
// that is asked about, which is tried first. A measurement that fails later is one of the report's
// problems, and the others go on (attempts.hpp).
#pragma once

#include <string>

#include "base/key.hpp"

#include "comm/control/world.hpp"

#include "doctor/report.hpp"

namespace trireme::doctor {

struct Request {
  Or<std::int64_t> threads{.value = {}, .keyword = "auto"};  ///< as run.threads
  std::string directory = ".";                               ///< that checkpoints will go to
};

/// Collective. Throws UserError when `directory` cannot be written, before anything is measured.
Report examine(comm::World& world, const Request& request);

}  // namespace trireme::doctor
