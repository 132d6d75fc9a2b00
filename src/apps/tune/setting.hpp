// SPDX-License-Identifier: Apache-2.0
// The keys of a deck that `trireme tune` may choose. None changes what is trained: the global
// batch, the data, the optimizer and what gradients travel as stay as they are.
//
//   batch.micro_sequences                                      micro-batch
//   model.recompute                                            memory for time
//   parallel.transport                                         how buckets travel
//   parallel.bucket_elements, parallel.bucket_boundaries       where they end
//
// Another value may round otherwise, and so change last bits:
//
// 1. Micro-batches are added up one after another: another size adds in another order.
// 2. Of two terms the order does not matter, nor with reduction: ordered and tree. Else each
//    transport adds in its own order; and a ring, which messages of sum in fp32 go around, begins
//    where an element's owner is, which depends on where buckets end. With parallel.replicate this
//    holds of the ranks of a copy, and of copies, whose sums go around a ring.
// 3. Recomputation gives the same bits.
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

/// All of its keys, as a deck has them.
std::vector<deck::KeyValue> values_of(const Setting& setting);
/// Those of `other` that differ from `base`.
std::vector<deck::KeyValue> differences(const Setting& base, const Setting& other);
/// "section.key=value …", as on a command line; "the deck's values" for none.
std::string words_of(const std::vector<deck::KeyValue>& values);

/// What the order of additions depends on beside a setting.
struct Additions {
  int ranks = 1;  ///< of a copy of the state
  comm::Reduction reduction = comm::Reduction::sum;
  int copies = 1;  ///< whose sums are added up in a ring
};

/// Whether a step may round otherwise: rules 1 to 3. `own_wire`, `other_wire`: what the transports
/// are here, without auto.
bool changes_bits(const Additions& additions,
                  const Setting& own,
                  comm::Transport own_wire,
                  const Setting& other,
                  comm::Transport other_wire);

}  // namespace trireme::tune
