// SPDX-License-Identifier: Apache-2.0
// Cross-checks of the section `batch`: batches that cannot be split over the ranks, and invalid
// schedules.
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

/// The sizes that could be read, from batch.sequences and batch.schedule.
std::vector<BatchSize> readable_sizes(const trireme::session::BatchConfig& batch,
                                      const KeyPlaces& places);

void check_batch(const JobConfig& config,
                 const trireme::model::GptShape& shape,
                 const Circumstances& circumstances,
                 Findings& findings);

}  // namespace trireme::deck
