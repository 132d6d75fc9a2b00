// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/traffic.hpp"

#include "base/error.hpp"

#include "comm/collective/routes.hpp"

namespace trireme::comm {
namespace {

std::int64_t bytes_of(DType dtype) {
  return static_cast<std::int64_t>(size_bytes(dtype));
}

void expect_between_hosts(Transport transport) {
  TRIREME_EXPECT(transport == Transport::mpi || transport == Transport::hierarchical,
                 "traffic between hosts of {}", word(transport));
}

/// A ring over all ranks: each sends all shards but one to the next rank.
std::vector<std::int64_t> ring_traffic(DType dtype, const Hosts& hosts, std::int64_t shard) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(hosts.count()));
  for (int rank = 0; rank < hosts.ranks(); ++rank) {
    const int host = hosts.host_of(rank);
    if (hosts.host_of((rank + 1) % hosts.ranks()) != host)
      bytes[static_cast<std::size_t>(host)] += (hosts.ranks() - 1) * shard * bytes_of(dtype);
  }
  return bytes;
}

}  // namespace

std::vector<std::int64_t> reduce_scatter_traffic(Transport transport,
                                                 Reduction reduction,
                                                 DType dtype,
                                                 const Hosts& hosts,
                                                 std::int64_t shard_elements) {
  expect_between_hosts(transport);
  if (transport == Transport::hierarchical)
    return reduce_bytes_between_hosts(reduction, dtype, hosts, shard_elements);
  if (reduction == Reduction::sum && dtype == DType::f32)
    return ring_traffic(dtype, hosts, shard_elements);
  std::vector<std::int64_t> bytes;
  for (int host = 0; host < hosts.count(); ++host) {
    const auto here = static_cast<std::int64_t>(hosts.members(host).size());
    bytes.push_back(here * (hosts.ranks() - here) * shard_elements * bytes_of(dtype));
  }
  return bytes;
}

std::vector<std::int64_t> all_gather_traffic(Transport transport,
                                             DType dtype,
                                             const Hosts& hosts,
                                             std::int64_t shard_elements) {
  expect_between_hosts(transport);
  if (transport == Transport::mpi)
    return ring_traffic(dtype, hosts, shard_elements);
  std::vector<std::int64_t> bytes;
  for (int host = 0; host < hosts.count(); ++host)
    bytes.push_back(static_cast<std::int64_t>(hosts.members(host).size()) * (hosts.count() - 1) *
                    shard_elements * bytes_of(dtype));
  return bytes;
}

}  // namespace trireme::comm
