// SPDX-License-Identifier: Apache-2.0
// The content of a deck for the trainer: its sections, the model's shape, and the deck as text for
// the record. A variant of a run is a copy with some keys changed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/config.hpp"

#include "model/config.hpp"

#include "reduce/config.hpp"

#include "batches/config.hpp"
#include "text/tokenizer.hpp"

#include "record/config.hpp"

#include "optim/config.hpp"
#include "session/config.hpp"

namespace trireme::session {

/// The sections of a deck that a run uses unchanged; of `model` it uses the resulting shape.
struct Sections {
  RunConfig run = {};
  GpuConfig gpu = {};
  batches::DataConfig data = {};
  BatchConfig batch = {};
  optim::OptimizerConfig optimizer = {};
  reduce::ParallelConfig parallel = {};
  device::MemoryConfig memory = {};
  record::RecordConfig record = {};
  record::CheckpointConfig checkpoint = {};
  EvaluateConfig evaluate = {};
  SampleConfig sample = {};
};

struct Job : Sections {
  model::GptShape shape = {};
  /// Path and value of every key, for the record.
  std::vector<std::pair<std::string, std::string>> deck = {};
  std::string resolved_deck = {};  ///< the text of deck.resolved.yaml
  /// Name and version of the parts of this build.
  std::vector<std::pair<std::string, std::string>> build = {};
  std::vector<Change> rules = {};  ///< for changes of each key of `deck`
  /// Encodes prompts, decodes samples, counts bytes of text. Null if the deck names no tokenizer.
  std::shared_ptr<const text::Tokenizer> tokenizer = {};
  /// The step at which the learning-rate schedule ends.
  [[nodiscard]] std::int64_t schedule_steps() const {
    return optimizer.schedule.steps.value_or(run.steps);
  }
};

}  // namespace trireme::session
