// SPDX-License-Identifier: Apache-2.0
// How one block's terms become its sum when they lie on several hosts: which partial sums a host
// makes, and where they travel. Arithmetic only; comm/collective/exchange.hpp carries it out.
//
// The reduction defines in which order the ranks' terms are added:
//
//   ordered  ((g0 + g1) + g2) + …
//   tree     ((g0 + g1) + (g2 + g3)) + …
//   sum      the terms of each host in rank order, then the hosts' sums in the order of hosts
//
// A part of that expression whose terms all lie on one host is added up there, by the block's agent
// (comm/collective/hosts.hpp), and travels as one partial sum in fp32; a term that is alone
// travels as it is. So nothing changes in the additions, only where they are made: with `ordered`
// and `tree` the bits are those of any other transport. There are two ways to go:
//
//   gathered  every partial sum goes to the owner, which makes the remaining additions
//   passed on with `ordered`: the sum so far walks from host to host in the order of ranks, each
//             adds its ranks' terms, and the last one sends what is complete, rounded, to the owner
//
// `ordered` takes the way on which fewer bytes cross between hosts.
//
// 1. All ranks make the same choice. 2. Visits are sorted by segment or term first, block second,
//    which keeps bounded windows free of deadlock (comm/collective/exchange.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.hpp"

#include "comm/collective/hosts.hpp"
#include "comm/config.hpp"

namespace trireme::comm {

/// One addition, on a stack of partial sums.
struct SumStep {
  enum class Kind : std::uint8_t {
    load,  ///< push the source
    add,   ///< add the source to the top
    merge  ///< pop the top and add it to what is below
  };
  Kind kind = Kind::load;
  bool incoming = false;  ///< the source is a message; else what a rank of this host has
  bool partial = false;   ///< the message is fp32; else of the bucket's dtype
  int source = 0;         ///< sender's rank, or position on this host
};

/// What a rank does for one chunk of one block.
struct Visit {
  int block = 0;                       ///< the owner's rank
  int to = -1;                         ///< rank that gets the result; -1: stored in the own block
  std::uint32_t first = 0, count = 0;  ///< of `steps`
  bool partial = false;                ///< the result travels as fp32
  bool as_it_is = false;               ///< nothing is added: sent from where it lies
  bool in_order = false;               ///< one source after another is added, all of one dtype
};

struct Routes {
  std::vector<SumStep> steps;
  std::vector<Visit> starts;     ///< need no message; all are sent
  std::vector<Visit> continues;  ///< need messages, in the order of their steps
  bool partials = false;         ///< whether fp32 partial sums travel anywhere
  std::size_t fan = 1;    ///< how many messages a chunk of a block takes; the same everywhere
  std::size_t depth = 1;  ///< of the stack
};

/// For one rank. With more than `rotates_up_to` messages per block all ranks serve the blocks in
/// the same order, so that a bounded window of messages keeps all of them busy.
Routes make_routes(Reduction reduction,
                   DType dtype,
                   const Hosts& hosts,
                   int rank,
                   std::size_t rotates_up_to = 512);

/// Bytes that each host sends to others while a bucket of `shard_elements` per rank is reduced.
std::vector<std::int64_t> reduce_bytes_between_hosts(Reduction reduction,
                                                     DType dtype,
                                                     const Hosts& hosts,
                                                     std::int64_t shard_elements);

}  // namespace trireme::comm
