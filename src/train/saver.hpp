// SPDX-License-Identifier: Apache-2.0
// Between the run's state and its checkpoints: which memory holds which elements of which
// parameter, and where a run begins.
//
// A checkpoint holds, per parameter and in fp32, "master" (the weights), "moment1" and "moment2",
// and the position of the data. bf16 parameters are the rounded master weights, so they are not
// stored. Each rank saves and loads the pieces that it owns under the plan; what the others own
// arrives by the engine's gather.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/world.hpp"

#include "optim/adamw.hpp"
#include "record/checkpoint.hpp"

#include "train/job.hpp"

namespace trireme::train {

/// The model's sizes and options as a checkpoint tells them; what two checkpoints must share.
record::NameValues model_facts(const model::GptShape& shape);
/// The way back. Throws UserError when a fact is missing or no number.
model::GptShape shape_from(const record::NameValues& facts, const std::string& directory);

class Saver {
 public:
  struct Resumed {
    std::int64_t step = 0;
    std::uint64_t next_sample = 0;
  };

  Saver(const Job& job,
        const layout::Plan& plan,
        optim::AdamW& optimizer,
        device::Device& device,
        comm::World& world);

  /// Collective. Loads the newest checkpoint in `run_directory`; nothing when there is none. Throws
  /// UserError when it is damaged or of another model or seed.
  std::optional<Resumed> load_newest(const std::string& run_directory, Log& log);
  /// Collective. GPT-2's initial values, a pure function of the seed.
  void initialize(device::Stream& compute);
  /// Collective.
  record::SavedCheckpoint save(const std::string& run_directory,
                               std::int64_t step,
                               std::uint64_t next_sample);

 private:
  const Job& job_;
  const layout::Plan& plan_;
  optim::AdamW& optimizer_;
  device::Device& device_;
  comm::World& world_;
};

}  // namespace trireme::train
