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
};

struct CheckpointConfig {
  std::int64_t every_steps = 500;
  double every_minutes = 0;
  std::int64_t keep = 3;
  std::int64_t keep_every = 0;
  bool asynchronous = true;
  std::string directory;

  /// Whether the run writes any without being asked.
  [[nodiscard]] bool regular() const { return every_steps > 0 || every_minutes > 0; }
};

template <class V>
void describe(V& v, RecordConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps", .help = "A row in /steps of the record every so many steps.", .min = 1});
  v("spans", c.spans,
    {.help = "Record where the time of each step goes (/timings): statistics over all ranks, and "
             "whole spans of some ranks and steps."});
  v("span_ranks", c.span_ranks,
    {.unit = "ranks",
     .help = "Whole spans are kept of so many ranks at most, spread evenly over all.",
     .min = 1,
     .max = 65536});
  v("span_megabytes", c.span_megabytes,
    {.unit = "MiB",
     .help =
         "Whole spans take so much memory of the first rank, and so much of run.h5, at most: where "
         "all steps would take more, those of every second, third, ... step are kept.",
     .min = 1,
     .max = 1 << 20});
}

template <class V>
void describe(V& v, CheckpointConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "A checkpoint every so many steps, and at the end. 0: none.",
     .min = 0});
  v("every_minutes", c.every_minutes,
    {.unit = "minutes",
     .help = "A checkpoint when the newest is that old, by the first rank's clock. 0: none.",
     .min = 0.0,
     .max = 1e6});
  v("keep", c.keep,
    {.unit = "checkpoints",
     .help = "So many of the newest stay, and older ones are removed. 0: keep all.",
     .min = 0});
  v("keep_every", c.keep_every,
    {.unit = "steps",
     .help = "Checkpoints of steps that are a multiple of this are milestones, which "
             "checkpoint.keep never removes; a multiple of checkpoint.every_steps. What was "
             "written as a milestone stays one when this changes. 0: none.",
     .min = 0});
  v("asynchronous", c.asynchronous,
    {.help =
         "Steps continue while a copy of the state is written; false: they wait, which needs no "
         "memory for a copy."});
  v("directory", c.directory,
    {.help = "Where checkpoints lie; run.directory/checkpoints then is a link to it. Empty: in "
             "run.directory/checkpoints itself."});
}

}  // namespace trireme::record
