// SPDX-License-Identifier: Apache-2.0
// The deck sections `record` and `checkpoint`: what a run leaves behind, and how often.
#pragma once

#include <cstdint>

#include "base/key.hpp"

namespace trireme::record {

struct RecordConfig {
  std::int64_t every_steps = 1;
  bool spans = true;
};

struct CheckpointConfig {
  std::int64_t every_steps = 500;
  std::int64_t keep = 3;
};

template <class V>
void describe(V& v, RecordConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps", .help = "A row in /steps of run.h5 every so many steps.", .min = 1});
  v("spans", c.spans, {.help = "Record where the time of each step goes (/timings)."});
}

template <class V>
void describe(V& v, CheckpointConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "A checkpoint every so many steps, and at the end. 0: none.",
     .min = 0});
  v("keep", c.keep,
    {.unit = "checkpoints", .help = "Older ones are removed. 0: keep all.", .min = 0});
}

}  // namespace trireme::record
