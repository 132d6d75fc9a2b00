// SPDX-License-Identifier: Apache-2.0
// The deck sections `record` and `checkpoint`: what a run writes, and how often.
#pragma once

#include <cstdint>
#include <string>

#include "base/key.hpp"

namespace trireme::record {

struct RecordConfig {
  std::int64_t every_steps = 1;
  bool spans = true;
  std::int64_t span_ranks = 8;
  std::int64_t span_megabytes = 256;
  std::int64_t norms_every_steps = 0;
  std::string metrics_file = {};
};

struct CheckpointConfig {
  std::int64_t every_steps = 500;
  double every_minutes = 0;
  std::int64_t keep = 3;
  std::int64_t keep_every = 0;
  bool asynchronous = true;
  std::int64_t memory_every_steps = 0;
  std::string directory;

  /// Whether the run writes checkpoints at intervals, without a request.
  [[nodiscard]] bool regular() const { return every_steps > 0 || every_minutes > 0; }
};

template <class V>
void describe(V& v, RecordConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps", .help = "Record a row of /steps every N steps.", .min = 1});
  v("spans", c.spans,
    {.help = "Record where the time of each step goes (/timings): statistics over all ranks, and "
             "whole spans of some ranks and steps."});
  v("span_ranks", c.span_ranks,
    {.unit = "ranks",
     .help = "Maximum number of ranks whose full spans are recorded, spread evenly over all ranks.",
     .min = 1,
     .max = 65536});
  v("span_megabytes", c.span_megabytes,
    {.unit = "MiB",
     .help = "Maximum size of the full spans, in the memory of rank 0 and in run.h5. If all steps "
             "would take more, only every second, third, ... step is kept.",
     .min = 1,
     .max = 1 << 20});
  v("norms_every_steps", c.norms_every_steps,
    {.unit = "steps",
     .help = "Record the norms of gradient, weights and update of each layer (/norms) every N "
             "steps. They show which layer is about to diverge, and the log names it when the "
             "gradient jumps in a measured step. Such a step takes a pass over the gradients. 0: "
             "never.",
     .min = 0});
  v("metrics_file", c.metrics_file,
    {.help = "Text file of Prometheus with the newest row of /steps, replaced every few seconds, "
             "for the textfile collector of a node exporter; its name should end with .prom. Give "
             "each run its own. Empty: none."});
}

template <class V>
void describe(V& v, CheckpointConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "Write a checkpoint every N steps, and at the end. 0: never.",
     .min = 0});
  v("every_minutes", c.every_minutes,
    {.unit = "minutes",
     .help =
         "Write a checkpoint when the newest one is this old, by the clock of rank 0. 0: never.",
     .min = 0.0,
     .max = 1e6});
  v("keep", c.keep,
    {.unit = "checkpoints",
     .help = "Number of most recent checkpoints to keep. Older ones are removed, except milestones "
             "(keep_every). 0: keep all.",
     .min = 0});
  v("keep_every", c.keep_every,
    {.unit = "steps",
     .help = "Checkpoints of steps that are a multiple of this are milestones, which "
             "checkpoint.keep never removes. Must be a multiple of checkpoint.every_steps. A "
             "checkpoint written as a milestone remains one if this changes. 0: none.",
     .min = 0});
  v("asynchronous", c.asynchronous,
    {.help = "Continue with steps while a copy of the state is written. false: wait for the write, "
             "which needs no memory for a copy."});
  v("memory_every_steps", c.memory_every_steps,
    {.unit = "steps",
     .help = "Every N steps, each rank keeps a copy of its part of the state in its own memory and "
             "in that of another rank, which is on another host unless one host has more than half "
             "of the ranks. After a loss with parallel.on_lost_rank: shrink and Open MPI "
             "5, the other ranks write the newest complete copy as a checkpoint and resume from "
             "it; if both ranks that held a part were lost, from the newest checkpoint. Takes 4 "
             "times the memory of a rank's part of a checkpoint. Set it if steps between "
             "checkpoints are expensive. 0: never.",
     .min = 0});
  v("directory", c.directory,
    {.help = "Directory of the checkpoints; run.directory/checkpoints becomes a link to it. Empty: "
             "run.directory/checkpoints itself."});
}

}  // namespace trireme::record
