// SPDX-License-Identifier: Apache-2.0
// Everything that the trainer gets from a deck: the rooms' own config structs. A variant of a run
// is a copy with some keys changed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

#include "device/config.hpp"

#include "data/config.hpp"

#include "reduce/config.hpp"

#include "model/config.hpp"
#include "optim/config.hpp"
#include "record/config.hpp"

#include "session/config.hpp"
#include "text/tokenizer.hpp"

namespace trireme::session {

struct Job {
  RunConfig run;
  GpuConfig gpu;
  model::GptShape shape;
  data::DataConfig data;
  BatchConfig batch;
  optim::OptimizerConfig optimizer;
  reduce::ParallelConfig parallel;
  device::MemoryConfig memory;
  record::RecordConfig record;
  record::CheckpointConfig checkpoint;
  EvaluateConfig evaluate;
  SampleConfig sample;

  std::vector<std::pair<std::string, std::string>> deck =
      {};                     ///< path and value of every key, for the record
  std::string resolved_deck;  ///< the text of deck.resolved.yaml
  std::vector<std::pair<std::string, std::string>>
      build;                       ///< name and version of what this build is made of
  std::vector<Change> rules = {};  ///< of every key of `deck`
  /// What made the tokens: encodes prompts, decodes samples, counts bytes of text. Null where the
  /// deck does not say.
  std::shared_ptr<const text::Tokenizer> tokenizer;
  /// Where every key of `deck`, or the section around it, was given: for messages.
  std::vector<Place> places = {};

  /// That of the key `path`; without a file where it is not known.
  [[nodiscard]] Place place_of(const std::string& path) const {
    for (std::size_t i = 0; i < places.size() && i < deck.size(); ++i)
      if (deck[i].first == path)
        return places[i];
    return {};
  }
  /// Where the learning rate's schedule ends.
  [[nodiscard]] std::int64_t schedule_steps() const {
    return optimizer.schedule.steps.value_or(run.steps);
  }
};

}  // namespace trireme::session
