// SPDX-License-Identifier: Apache-2.0
// Generates the settings that `trireme tune` considers. All ranks compute the same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "layout/plan.hpp"

#include "session/config.hpp"

#include "tune/setting.hpp"

namespace trireme::tune {

/// A setting with its memory.
struct Candidate {
  Setting setting;
  comm::Transport wire = comm::Transport::self;  ///< the actual transport, never auto
  bool changes_bits = false;
  std::int64_t memory_bytes = 0;  ///< per rank
};

/// The available values. The first of each is the deck's own.
struct Choices {
  struct Option {
    comm::Transport transport{};  ///< as in the deck
    comm::Transport wire{};       ///< the actual transport
  };
  struct Compute {
    std::int64_t micro_sequences = 1;
    model::RecomputeKey recompute{};
  };
  std::vector<Option> transports;
  std::vector<Compute> computes;
  std::vector<std::int64_t> bucket_elements;  ///< other than the deck's
};

/// Micro-batch sizes with which every batch of the deck can be split over the ranks and over
/// `leaves` parts (of reduction: tree; else 1); ascending.
std::vector<std::int64_t> micro_batches(const session::BatchConfig& batch, std::int64_t parts);

/// `own` and the `most` - 1 other sizes with the smallest ratio to it; ascending.
std::vector<std::int64_t> nearest(std::vector<std::int64_t> sizes,
                                  std::int64_t own,
                                  std::size_t most);

/// Values of parallel.bucket_elements for about 1, 2, 3, 4, 6, 8, … 64 buckets, without values that
/// give the same buckets as another one or as `own`; descending.
std::vector<std::int64_t> bucket_sizes(const layout::Plan& own);

/// All combinations, the deck's own first.
std::vector<Candidate> candidates(const Setting& own,
                                  const Choices& choices,
                                  const Additions& additions);

/// The first, third, … of `sizes`, but not all of a single one.
std::vector<std::int64_t> every_other(const std::vector<std::int64_t>& sizes);

}  // namespace trireme::tune
