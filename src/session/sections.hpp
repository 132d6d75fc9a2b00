// SPDX-License-Identifier: Apache-2.0
// The sections of a deck that a run takes as they are: the rooms' own config structs, named once.
// The deck adds the section `model`, a run the shape that this section resolves to.
#pragma once

#include "device/config.hpp"

#include "data/config.hpp"

#include "reduce/config.hpp"

#include "optim/config.hpp"
#include "record/config.hpp"

#include "session/config.hpp"

namespace trireme::session {

struct Sections {
  RunConfig run = {};
  GpuConfig gpu = {};
  data::DataConfig data = {};
  BatchConfig batch = {};
  optim::OptimizerConfig optimizer = {};
  reduce::ParallelConfig parallel = {};
  device::MemoryConfig memory = {};
  record::RecordConfig record = {};
  record::CheckpointConfig checkpoint = {};
  EvaluateConfig evaluate = {};
  SampleConfig sample = {};
};

}  // namespace trireme::session
