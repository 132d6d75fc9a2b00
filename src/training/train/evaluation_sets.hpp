// SPDX-License-Identifier: Apache-2.0
// evaluate.sets: losses and answers of the model while it trains.
//
// 1. Files are read and checked once, before the first step; text and questions stay in memory.
// 2. The results are equal to those of `trireme evaluate` for the run's parameters, in the
//    precision of the run, and have the same bits on any number of ranks of a CPU.
// 3. The activations of an evaluation are allocated for it and freed after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "record/run/name_values.hpp"
#include "record/run/rows.hpp"

#include "inference/evaluation_data.hpp"
#include "session/job.hpp"
#include "session/session.hpp"

namespace trireme::train {

class EvaluationSets {
 public:
  struct Result {
    const session::EvaluationSet* set = nullptr;
    std::string of;  ///< the files
    record::EvaluationRow row;
    std::string text;  ///< for people
  };

  /// Collective. Throws UserError with all findings about all sets. Logs which files were left out.
  EvaluationSets(const session::Job& job, comm::World& world, Log& log);

  /// Hashes of the sets' data, for checkpoints. Warns of those that differ from `earlier` ones.
  [[nodiscard]] record::NameValues hashes(const record::NameValues& earlier, Log& log) const;

  [[nodiscard]] bool due(std::int64_t step) const;
  /// Collective. Evaluates the sets that are due after `step`. Throws comm::Interrupted when
  /// `interrupts` is true on any rank.
  std::vector<Result> evaluate(std::int64_t step,
                               session::Session& session,
                               const comm::Wanted& interrupts = {});

 private:
  [[nodiscard]] bool is_due(const session::EvaluationSet& set, std::int64_t step) const {
    return step % set.every_steps == 0 || step == job_.run.steps;
  }

  const session::Job& job_;
  comm::World& world_;
  const std::vector<std::int32_t> bytes_of_;
  std::vector<inference::EvaluationData> data_;  // of each set
};

}  // namespace trireme::train
