// SPDX-License-Identifier: Apache-2.0
// What `trireme tune` considers: settings of a deck, put together of what there is to choose from,
// and which few of them are worth running. Pure arithmetic, the same wherever it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "layout/plan.hpp"

#include "session/config.hpp"

#include "tune/setting.hpp"

namespace trireme::tune {

/// The deck's own setting and others of its keys.
struct Candidate {
  Setting setting;
  comm::Transport wire = comm::Transport::self;  ///< the transport that it is, without auto
  bool changes_bits = false;
  std::int64_t memory_bytes = 0;  ///< of a rank
  double predicted_s = 0;         ///< a step
};

/// What there is to choose from. The first of each is the deck's own.
struct Choices {
  struct Way {
    comm::Transport transport{};  ///< as in the deck
    comm::Transport wire{};       ///< what it is
  };
  struct Compute {
    std::int64_t micro_sequences = 1;
    model::RecomputeKey recompute{};
  };
  std::vector<Way> ways;
  std::vector<Compute> computes;
  std::vector<std::int64_t> bucket_elements;  ///< others than the deck's
};

/// Sizes of a micro-batch with which every batch of the deck can be split over the ranks, and with
/// `leaves` (of reduction: tree; else 1) over as many parts of the whole batch; ascending.
std::vector<std::int64_t> micro_batches(const session::BatchConfig& batch, int ranks, int leaves);

/// `own` and the `most` - 1 others nearest to it in proportion; ascending.
std::vector<std::int64_t> nearest(std::vector<std::int64_t> sizes,
                                  std::int64_t own,
                                  std::size_t most);

/// Values of parallel.bucket_elements for about 1, 2, 3, 4, 6, 8, … 64 buckets that each give
/// buckets of their own and not those of `own`; descending.
std::vector<std::int64_t> bucket_sizes(const layout::Plan& own);

/// Every combination; the deck's own is the first.
std::vector<Candidate> candidates(const Setting& own,
                                  const Choices& choices,
                                  const Additions& additions);

/// Positions of the deck's own candidate, which is the first, and of up to `most` others whose
/// predicted step is shorter by 0.1 %, the shortest first: of those with the same micro-batch and
/// recomputation not more than two. Where predictions are within half a percent, that which changes
/// no bits goes first, and of these that with the fewest changed keys.
std::vector<std::size_t> shortlist(const std::vector<Candidate>& all, std::size_t most);

}  // namespace trireme::tune
