// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/uneven_gather.hpp"

#include <algorithm>

#include "base/round_up.hpp"

#include "comm/control/requests.hpp"

namespace trireme::comm {
namespace {

constexpr int uneven_gather_tag = 13;

}  // namespace

UnevenGather::UnevenGather(MPI_Comm comm,
                           Progress& progress,
                           const Hosts& hosts,
                           std::size_t chunk_bytes)
    : comm_(comm), progress_(progress), chunk_bytes_(chunk_bytes) {
  TRIREME_MPI(MPI_Comm_rank(comm_, &rank_));
  TRIREME_MPI(MPI_Comm_size(comm_, &size_));
  const int here = hosts.host_of(rank_);
  for (int owner = 0; owner < size_; ++owner)
    if (owner != rank_ && hosts.agent(here, owner) == rank_)
      owners_.push_back(owner);
  for (int step = 1; step < hosts.count(); ++step)
    agents_.push_back(hosts.agent((here + step) % hosts.count(), rank_));
  sending_.assign(window, MPI_REQUEST_NULL);
  receiving_.assign(window, MPI_REQUEST_NULL);
}

void UnevenGather::all_gather(View full) {
  const std::int64_t shard = full.elements / size_;
  if (shard == 0)
    return;
  const CancelOnExit sends(sending_), receives(receiving_);
  const auto elements = static_cast<std::int64_t>(chunk_bytes_ / size_bytes(full.dtype));
  const std::int64_t chunks = divided_up(shard, elements);
  const auto piece = [&](int owner, std::int64_t chunk) {
    const std::int64_t begin = chunk * elements;
    return full.slice(owner * shard + begin, std::min(elements, shard - begin));
  };
  const auto per_chunk = [](const std::vector<int>& ranks) {
    return std::max<std::int64_t>(static_cast<std::int64_t>(ranks.size()), 1);
  };
  const auto pick = [&](const std::vector<int>& ranks, std::int64_t k) {
    return ranks[static_cast<std::size_t>(k % per_chunk(ranks))];
  };
  const auto slot = [](std::int64_t k) { return static_cast<std::size_t>(k) % window; };
  constexpr auto most = static_cast<std::int64_t>(window);
  const std::int64_t incoming = chunks * static_cast<std::int64_t>(owners_.size());
  const std::int64_t outgoing = chunks * static_cast<std::int64_t>(agents_.size());
  std::int64_t received = 0, expected = 0, sent = 0, started = 0;
  while (received < incoming || sent < outgoing) {
    for (; expected < std::min(incoming, received + most); ++expected) {
      const int owner = pick(owners_, expected);
      const View to = piece(owner, expected / per_chunk(owners_));
      TRIREME_MPI(MPI_Irecv(to.data, static_cast<int>(to.bytes()), MPI_BYTE, owner,
                            uneven_gather_tag, comm_, &receiving_[slot(expected)]));
    }
    for (; started < std::min(outgoing, sent + most); ++started) {
      const View from = piece(rank_, started / per_chunk(agents_));
      TRIREME_MPI(MPI_Isend(from.data, static_cast<int>(from.bytes()), MPI_BYTE,
                            pick(agents_, started), uneven_gather_tag, comm_,
                            &sending_[slot(started)]));
    }
    const std::int64_t before = received + sent;
    while (received < expected && completed(receiving_[slot(received)])) ++received;
    while (sent < started && completed(sending_[slot(sent)])) ++sent;
    if (received + sent > before)
      progress_.moved();
    else
      progress_.pause();
  }
}

}  // namespace trireme::comm
