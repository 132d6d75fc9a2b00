// SPDX-License-Identifier: Apache-2.0
// Counts how often a run has gone through its training data, part by part of a mixture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batches/dataset.hpp"

namespace trireme::train {

/// How many epochs the first `samples` of a run are, for people.
std::string epochs_text(const batches::Dataset& dataset, std::int64_t samples);
/// A warning where they go more often through a part than repeated data helps; empty: they do not.
std::string epochs_warning(const batches::Dataset& dataset, std::int64_t samples);
/// A line for each part of which an epoch ends between the first `before` and the first `after`
/// samples.
std::vector<std::string> epochs_ended(const batches::Dataset& dataset,
                                      std::int64_t before,
                                      std::int64_t after);

}  // namespace trireme::train
