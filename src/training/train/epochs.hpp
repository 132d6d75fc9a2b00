// SPDX-License-Identifier: Apache-2.0
// Counts how often a run has gone through its training data, part by part of a mixture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batches/dataset.hpp"

namespace trireme::train {

class Epochs {
 public:
  /// From a run whose next sample is `next_sample`. The dataset outlives the object.
  Epochs(const batches::Dataset& dataset, std::int64_t next_sample);

  /// How many epochs the first `samples` of the run are, for people.
  [[nodiscard]] std::string forecast(std::int64_t samples) const;
  /// A warning where they go more often through a part than repeated data helps; empty: they do
  /// not.
  [[nodiscard]] std::string warning(std::int64_t samples) const;
  /// A line for each part of which an epoch has ended since the last call.
  std::vector<std::string> passed(std::int64_t next_sample);

 private:
  /// Epochs of each part in the first `samples` of the run.
  [[nodiscard]] std::vector<double> epochs(std::int64_t samples) const;
  /// Those that are over.
  [[nodiscard]] std::vector<std::int64_t> ended(std::int64_t samples) const;

  const batches::Dataset& dataset_;
  std::vector<std::int64_t> ended_;
};

}  // namespace trireme::train
