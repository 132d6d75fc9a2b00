// SPDX-License-Identifier: Apache-2.0
// The deck keys that `trireme tune` may change. None changes what is trained: global batch, data,
// optimizer and the data type of gradients stay the same.
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
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/shape.hpp"

#include "deck/config.hpp"
#include "deck/edit.hpp"

namespace trireme::tune {

struct Setting {
  std::int64_t micro_sequences = 1;
  model::RecomputeKey recompute = model::Recompute::none;
  comm::Transport transport = comm::Transport::automatic;
  Or<std::int64_t> bucket_elements{};
  std::vector<std::string> bucket_boundaries{};
};

Setting setting_of(const deck::JobConfig& config);
void apply(const Setting& setting, deck::JobConfig& config);

/// All keys with their values in a deck.
std::vector<deck::KeyValue> values_of(const Setting& setting);
/// The values of `other` that differ from `base`.
std::vector<deck::KeyValue> differences(const Setting& base, const Setting& other);
/// "section.key=value …", as on a command line; "the deck's values" if empty.
std::string words_of(const std::vector<deck::KeyValue>& values);

/// What else determines the order of additions.
struct Additions {
  int ranks = 1;  ///< of a replica
  comm::Reduction reduction = comm::Reduction::sum;
  int replicas = 1;  ///< whose sums are added in a ring
};

/// Whether the rounding may differ between `own` and `other`, by rules 1 to 3. `own_wire` and
/// `other_wire` are the actual transports, never auto.
bool changes_bits(const Additions& additions,
                  const Setting& own,
                  comm::Transport own_wire,
                  const Setting& other,
                  comm::Transport other_wire);

}  // namespace trireme::tune
