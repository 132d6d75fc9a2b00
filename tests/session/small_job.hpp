// SPDX-License-Identifier: Apache-2.0
// A job whose sessions take a fraction of a second.
#pragma once

#include "session/job.hpp"

namespace trireme::session {

inline Job small_job() {
  Job job;
  job.run.steps = 20;
  job.run.precision = Precision::fp32;
  job.run.threads.value = 1;
  job.shape = {
      .layers = 2, .heads = 2, .channels = 16, .context = 16, .vocabulary = 32, .dropout = 0.1};
  job.data.train.synthetic = 4000;
  job.batch = {.sequences = 12, .micro_sequences = 2};
  job.parallel.bucket_elements.value = 2000;
  return job;
}

}  // namespace trireme::session
