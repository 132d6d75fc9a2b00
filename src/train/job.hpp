// SPDX-License-Identifier: Apache-2.0
// Everything that the trainer is told: the rooms' own config structs, borrowed from whoever parsed
// the deck.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "device/config.hpp"

#include "data/config.hpp"

#include "model/config.hpp"
#include "reduce/config.hpp"

#include "optim/config.hpp"
#include "record/config.hpp"

#include "train/config.hpp"

namespace trireme::train {

struct Job {
  const RunConfig& run;
  const model::GptShape& shape;
  const data::DataConfig& data;
  const BatchConfig& batch;
  const optim::OptimizerConfig& optimizer;
  const reduce::ParallelConfig& parallel;
  const device::MemoryConfig& memory;
  const record::RecordConfig& record;
  const record::CheckpointConfig& checkpoint;
  const EvaluateConfig& evaluate;
  const SampleConfig& sample;

  std::vector<std::pair<std::string, std::string>>
      deck;                   ///< path and value of every key, for the record
  std::string resolved_deck;  ///< the text of deck.resolved.yaml
  std::vector<std::pair<std::string, std::string>>
      build;                       ///< name and version of what this build is made of
  std::vector<Change> rules = {};  ///< of every key of `deck`

  /// Where the learning rate's schedule ends.
  [[nodiscard]] std::int64_t schedule_steps() const {
    return optimizer.schedule.steps.value_or(run.steps);
  }
};

}  // namespace trireme::train
