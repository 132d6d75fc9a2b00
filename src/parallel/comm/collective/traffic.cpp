// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/traffic.hpp"

#include <algorithm>
#include <functional>

#include "comm/collective/routes.hpp"

namespace trireme::comm {
namespace {

std::int64_t bytes_of(DType dtype) {
  return static_cast<std::int64_t>(size_bytes(dtype));
}

bool sends_between_hosts(Transport transport) {
  return transport == Transport::mpi || transport == Transport::hierarchical;
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

std::vector<std::int64_t> reduce_scatter_traffic(Transport transport,
                                                 Reduction reduction,
                                                 DType dtype,
                                                 const Hosts& hosts,
                                                 std::int64_t shard_elements) {
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
  if (transport == Transport::mpi)
    return ring_traffic(dtype, hosts, shard_elements);
  std::vector<std::int64_t> bytes;
  bytes.reserve(static_cast<std::size_t>(hosts.count()));
  for (int host = 0; host < hosts.count(); ++host)
    bytes.push_back(static_cast<std::int64_t>(hosts.members(host).size()) * (hosts.count() - 1) *
                    shard_elements * bytes_of(dtype));
  return bytes;
}

/// The ranks of every replica, or with `across` every set of ranks that own the same shard.
std::vector<std::vector<int>> groups_of(const layout::ReplicaRanks& replicas, bool across) {
  std::vector<std::vector<int>> groups(
      static_cast<std::size_t>(across ? replicas.size(0) : replicas.count()));
  for (int rank = 0; rank < replicas.ranks(); ++rank) {
    const int replica = replicas.of(rank);
    groups[static_cast<std::size_t>(across ? rank - replicas.first(replica) : replica)].push_back(
        rank);
  }
  return groups;
}

/// Adds the bytes that a group of ranks sends between its hosts; `traffic` computes them for the
/// group alone.
template <class Traffic>
void add_traffic(std::vector<std::int64_t>& bytes,
                 const Hosts& hosts,
                 const std::vector<int>& ranks,
                 const Traffic& traffic) {
  std::vector<int> host_of;
  host_of.reserve(ranks.size());
  for (const int rank : ranks) host_of.push_back(hosts.host_of(rank));
  const Hosts own(host_of);
  const std::vector<std::int64_t> added = traffic(own);
  for (int host = 0; host < own.count(); ++host) {
    const int first = own.members(host).front();  // in the group
    bytes[static_cast<std::size_t>(host_of[static_cast<std::size_t>(first)])] +=
        added[static_cast<std::size_t>(host)];
  }
}

}  // namespace

std::vector<std::int64_t> reduce_traffic(Transport inside,
                                         Reduction reduction,
                                         DType dtype,
                                         const Hosts& hosts,
                                         const layout::ReplicaRanks& replicas,
                                         std::int64_t bucket_elements,
                                         bool sums_inside) {
  const auto all_reduce = [&](const Hosts& own, std::int64_t elements) {
    const std::int64_t shard = elements / own.ranks();
    auto bytes = reduce_scatter_traffic(Transport::mpi, reduction, dtype, own, shard);
    const auto gathered = all_gather_traffic(Transport::mpi, dtype, own, shard);
    std::ranges::transform(bytes, gathered, bytes.begin(), std::plus{});
    return bytes;
  };
  if (reduction != Reduction::sum && !sums_inside && replicas.count() > 1)
    return all_reduce(hosts, bucket_elements);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(hosts.count()));
  if (!sums_inside && replicas.count() > 1)
    for (const auto& group : groups_of(replicas, true))
      add_traffic(bytes, hosts, group, [&](const Hosts& own) {
        return all_reduce(own, bucket_elements / replicas.size(0));
      });
  if (sends_between_hosts(inside))
    for (const auto& group : groups_of(replicas, false))
      add_traffic(bytes, hosts, group, [&](const Hosts& own) {
        return reduce_scatter_traffic(inside, reduction, dtype, own, bucket_elements / own.ranks());
      });
  return bytes;
}

std::vector<std::int64_t> gather_traffic(Transport inside,
                                         DType dtype,
                                         const Hosts& hosts,
                                         const layout::ReplicaRanks& replicas,
                                         std::int64_t bucket_elements) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(hosts.count()));
  if (sends_between_hosts(inside))
    for (const auto& group : groups_of(replicas, false))
      add_traffic(bytes, hosts, group, [&](const Hosts& own) {
        return all_gather_traffic(inside, dtype, own, bucket_elements / own.ranks());
      });
  return bytes;
}

}  // namespace trireme::comm
