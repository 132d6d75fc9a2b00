// SPDX-License-Identifier: Apache-2.0
// The findings of check() for the deck's section `batch`: batches that cannot be split over the
// ranks, and a schedule that is none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deck/check.hpp"
#include "deck/findings.hpp"

namespace trireme::deck {

/// A size that a step's batch may have, and the key that sets it.
struct BatchSize {
  std::string path;
  std::int64_t sequences = 0;
};

/// All that could be read: batch.sequences and those of batch.schedule.
std::vector<BatchSize> readable_sizes(const trireme::session::BatchConfig& batch,
                                      const Places& places);

void check_batch(const JobConfig& config,
                 const trireme::model::GptShape& shape,
                 const Circumstances& circumstances,
                 Findings& findings);

}  // namespace trireme::deck
