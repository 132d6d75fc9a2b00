// SPDX-License-Identifier: Apache-2.0
// The settings that `trireme tune` considers, and the choice among those that were run. All ranks
// compute the same result.
//
// A setting is a deck of which these keys may have other values. None changes what is trained:
// global batch, data, optimizer and the data type of gradients stay the same.
//
//   batch.micro_sequences                                      micro-batch
//   model.recompute                                            memory against time
//   parallel.transport                                         transport of buckets
//   parallel.bucket_elements, parallel.bucket_boundaries       sizes of buckets
//
// Another value may change the rounding of sums:
//
// 1. The gradients of micro-batches are added one after another, so another size changes the order.
// 2. With two ranks, or with reduction: ordered or tree, the order of additions is fixed. Else each
//    transport adds in its own order; a ring, which the transport mpi uses for fp32 sums, begins at
//    an element's owner, which depends on the buckets. With parallel.replicate this applies to the
//    ranks of a replica, and to the replicas, whose sums use a ring.
// 3. Recomputation does not change any bits.
//
// In every round each setting and the deck's own are run once. A ratio compares two steps of the
// same round, so that disturbances of the machine affect both. A setting is measurably better if
// its median ratio is at least 1 % below 1 and three quarters of its ratios are below 1.
//
// The best of several is partly chance. So it is run again against the deck's own values, and only
// these rounds decide and give the gain. The setting must be measurably better with at most one
// ratio in eight above 1; without a real gain, 9 of 256 series of eight rounds achieve this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/plan.hpp"

#include "model/shape.hpp"

#include "session/config.hpp"

#include "deck/config.hpp"
#include "deck/edit.hpp"

namespace trireme::tune {

/// The keys of a setting with their values in this deck.
std::vector<deck::KeyValue> values_of(const deck::JobConfig& config);
/// The values of `other` that differ from `base`.
std::vector<deck::KeyValue> differences(const deck::JobConfig& base, const deck::JobConfig& other);
/// "section.key=value …", as on a command line; "the deck's values" if empty.
std::string words_of(const std::vector<deck::KeyValue>& values);

/// What else determines the order of additions.
struct Additions {
  int ranks = 1;  ///< of a replica
  comm::Reduction reduction = comm::Reduction::sum;
  int replicas = 1;  ///< whose sums are added in a ring
};

/// Whether rounding may differ, by rules 1 to 3. The wires are the actual transports, never auto.
bool changes_bits(const Additions& additions,
                  const deck::JobConfig& own,
                  comm::Transport own_wire,
                  const deck::JobConfig& other,
                  comm::Transport other_wire);

struct Candidate {
  deck::JobConfig config;
  comm::Transport wire = comm::Transport::self;  ///< the actual transport, never auto
  bool changes_bits = false;
  std::int64_t memory_bytes = 0;  ///< per rank
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

/// The first, third, … of `sizes`, but not all of a single one.
std::vector<std::int64_t> every_other(const std::vector<std::int64_t>& sizes);

inline constexpr double least_gain = 0.01;

struct Ratio {
  double median = 1;
  double low = 1, high = 1;  ///< quartiles

  [[nodiscard]] bool measurably_better() const { return median <= 1 - least_gain && high < 1; }
};

/// The ratio of seconds in the same rounds. Requires: equal numbers, at least one.
Ratio ratio_of(const std::vector<double>& seconds, const std::vector<double>& own);

/// Whether the repeated rounds show a gain.
bool confirms(const std::vector<double>& seconds, const std::vector<double>& own);

/// The result of a setting in the first rounds.
struct Trial {
  Ratio ratio;
  bool changes_bits = false;
  std::size_t changed_keys = 0;
};

/// The setting to run again. Considers those that are measurably better and within 1 % of the
/// smallest median ratio, and prefers one that changes no bits, then one with the fewest changed
/// keys. Nothing if none is measurably better.
std::optional<std::size_t> best_of(const std::vector<Trial>& trials);

}  // namespace trireme::tune
