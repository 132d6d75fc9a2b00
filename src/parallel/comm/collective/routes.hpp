// SPDX-License-Identifier: Apache-2.0
// How the terms of one block are summed when they are on several hosts: which partial sums a host
// computes, and to which rank it sends them. Arithmetic only; comm/collective/exchange.hpp executes
// the routes.
//
// A part of the sum (order of additions: communicator.hpp, rule 5) whose terms are all on one host
// is added up on that host, by the block's agent (comm/collective/hosts.hpp), and sent as one
// partial sum in fp32; a single term is sent unchanged. So the additions stay the same, and only
// the rank that makes them changes. There are two methods:
//
//   gathered  every partial sum is sent to the owner, which makes the remaining additions
//   passed on with `ordered`: the partial sum is sent from host to host in the order of ranks; each
//             adds its ranks' terms, and the last one sends the rounded sum to the owner
//
// `ordered` takes the method that sends fewer bytes between hosts.
//
// 1. All ranks make the same choice. 2. Tasks are sorted by term, or by segment first and block
//    second, so that bounded windows cannot deadlock (comm/collective/exchange.hpp).
#pragma once

#include <cstdint>
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
  bool incoming = false;  ///< the source is a message; else memory of a rank of this host
  bool partial = false;   ///< the message is fp32; else of the bucket's dtype
  bool passed = false;    ///< the sender continued the sum; else it started it
  int source = 0;         ///< sender's rank, or position on this host
};

/// The work of one rank for one chunk of one block.
struct BlockTask {
  int block = 0;                       ///< the owner's rank
  int to = -1;                         ///< receiver of the result; -1: stored in own block
  std::uint32_t first = 0, count = 0;  ///< of `steps`
  std::int64_t messages = 0;           ///< that its steps need
  bool partial = false;                ///< the result is sent as fp32
  bool unchanged = false;              ///< nothing is added: sent in place
  bool in_order = false;               ///< sources of one dtype are added one after another
};

struct Routes {
  std::vector<SumStep> steps;
  std::vector<BlockTask> starts;     ///< need no message; all results are sent
  std::vector<BlockTask> continues;  ///< need messages, in the order of their steps
  bool partials = false;             ///< whether any fp32 partial sums are sent
  std::size_t fan = 1;               ///< messages per chunk of a block; the same on all ranks
};

Routes make_routes(Reduction reduction, DType dtype, const Hosts& hosts, int rank);

/// Bytes that each host sends to others while a bucket of `shard_elements` per rank is reduced.
std::vector<std::int64_t> reduce_bytes_between_hosts(Reduction reduction,
                                                     DType dtype,
                                                     const Hosts& hosts,
                                                     std::int64_t shard_elements);

}  // namespace trireme::comm
