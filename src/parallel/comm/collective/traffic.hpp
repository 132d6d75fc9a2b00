// SPDX-License-Identifier: Apache-2.0
// The number of bytes that each host sends to other hosts in a collective of these transports.
// Arithmetic only; a test counts the bytes that are sent (tests/comm/traffic_test.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "layout/replica_ranks.hpp"

#include "comm/collective/hosts.hpp"
#include "comm/config.hpp"

namespace trireme::comm {

/// Bytes by host of a reduce-scatter of a bucket (replicated_communicator.cpp). `inside` is the
/// transport inside each replica. Requires: equal replicas, unless sums end inside a replica.
std::vector<std::int64_t> reduce_traffic(Transport inside,
                                         Reduction reduction,
                                         DType dtype,
                                         const Hosts& hosts,
                                         const layout::ReplicaRanks& replicas,
                                         std::int64_t bucket_elements,
                                         bool sums_inside);
std::vector<std::int64_t> gather_traffic(Transport inside,
                                         DType dtype,
                                         const Hosts& hosts,
                                         const layout::ReplicaRanks& replicas,
                                         std::int64_t bucket_elements);

/// The transport that `auto` chooses for ranks on these hosts, on a CPU.
inline Transport transport_for(const Hosts& hosts) {
  if (hosts.ranks() == 1)
    return Transport::self;
  if (hosts.count() == 1)
    return Transport::shared_memory;
  return hosts.count() == hosts.ranks() ? Transport::mpi : Transport::hierarchical;
}

}  // namespace trireme::comm
