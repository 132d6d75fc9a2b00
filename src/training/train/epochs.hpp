// SPDX-License-Identifier: Apache-2.0
// Counts the epochs of a run, separately for each part of a mixture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batches/dataset.hpp"

namespace trireme::train {

/// The number of epochs in the first `samples` of a run, for people.
std::string epochs_text(const batches::Dataset& dataset, std::int64_t samples);
/// A warning if they repeat a part more often than repeated data helps; else empty.
std::string epochs_warning(const batches::Dataset& dataset, std::int64_t samples);
/// A line for each part of which an epoch ends between sample counts `before` and `after`.
std::vector<std::string> epochs_ended(const batches::Dataset& dataset,
                                      std::int64_t before,
                                      std::int64_t after);

}  // namespace trireme::train
