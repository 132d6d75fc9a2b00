// SPDX-License-Identifier: Apache-2.0
// A deck for sessions of a fraction of a second, with the structs that a Job borrows.
#pragma once

#include "train/job.hpp"

namespace trireme::train {

struct SmallDeck {
  SmallDeck() {
    run.steps = 20;
    run.precision = Precision::fp32;
    run.threads.value = 1;
    data.train.synthetic = 4000;
    parallel.bucket_elements.value = 2000;
  }
  /// Valid as long as the deck.
  [[nodiscard]] Job job() const {
    return {run,    shape,      data,     batch,  optimizer, parallel, memory,
            record, checkpoint, evaluate, sample, {},        {},       {}};
  }

  RunConfig run;
  model::GptShape shape{
      .layers = 2, .heads = 2, .channels = 16, .context = 16, .vocabulary = 32, .dropout = 0.1};
  data::DataConfig data;
  BatchConfig batch{.sequences = 12, .micro_sequences = 2};
  optim::OptimizerConfig optimizer;
  reduce::ParallelConfig parallel;
  device::MemoryConfig memory;
  record::RecordConfig record;
  record::CheckpointConfig checkpoint;
  EvaluateConfig evaluate;
  SampleConfig sample;
};

}  // namespace trireme::train
