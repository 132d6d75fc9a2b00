// SPDX-License-Identifier: Apache-2.0
// What check() says of the deck's section `batch`: whether every batch can be split over the ranks,
// and whether its schedule is one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deck/check.hpp"
#include "deck/findings.hpp"

namespace trireme::deck {

/// A size that a step's batch may have, and the key that says so.
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
