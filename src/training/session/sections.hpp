// SPDX-License-Identifier: Apache-2.0
// The sections of a deck that a run uses unchanged: the config structs of all rooms. In addition a
// deck has the section `model`, and a run has the shape that results from it.
#pragma once

#include "device/config.hpp"

#include "reduce/config.hpp"

#include "batches/config.hpp"

#include "record/config.hpp"

#include "optim/config.hpp"
#include "session/config.hpp"

namespace trireme::session {

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

}  // namespace trireme::session
