// SPDX-License-Identifier: Apache-2.0
#include "comm/exchange.hpp"

#include <algorithm>

#include "comm/requests.hpp"

namespace trireme::comm {
namespace {

constexpr int exchange_tag = 12;

}  // namespace

Exchange::Exchange(MPI_Comm comm,
                   Progress& progress,
                   Summation sum,
                   device::Device& device,
                   std::size_t chunk_bytes)
    : comm_(comm), progress_(progress), sum_(sum) {
  TRIREME_MPI(MPI_Comm_rank(comm_, &rank_));
  TRIREME_MPI(MPI_Comm_size(comm_, &size_));
  const auto num_ranks = static_cast<std::size_t>(size_);
  // A group is about four chunks' worth, however many ranks share it.
  chunk_bytes_ =
      std::min(chunk_bytes, std::max(4 * chunk_bytes / num_ranks / 64 * 64, smallest_chunk_bytes));
  if (size_ > 1)
    scratch_ = device.allocate(groups * num_ranks * chunk_bytes_, "exchange messages");
  sending_.assign(groups * num_ranks, MPI_REQUEST_NULL);
  receiving_.assign(groups * num_ranks, MPI_REQUEST_NULL);
  sources_.resize(num_ranks);
}

std::span<MPI_Request> Exchange::of_group(std::vector<MPI_Request>& requests,
                                          std::int64_t group) const {
  const auto num_ranks = static_cast<std::size_t>(size_);
  return std::span(requests).subspan(static_cast<std::size_t>(group) % groups * num_ranks,
                                     num_ranks);
}

View Exchange::chunk_of(const View& block, std::int64_t group) const {
  const auto elements = static_cast<std::int64_t>(chunk_bytes_ / size_bytes(block.dtype));
  const std::int64_t begin = group * elements;
  return block.slice(begin, std::min(elements, block.elements - begin));
}

std::byte* Exchange::landing(std::int64_t group, int peer) const {
  const std::size_t slot = static_cast<std::size_t>(group) % groups;
  return scratch_.data() +
         (slot * static_cast<std::size_t>(size_) + static_cast<std::size_t>(peer)) * chunk_bytes_;
}

void Exchange::send_group(std::span<const View> blocks,
                          std::span<const std::byte* const> readable,
                          std::int64_t group) {
  const auto requests = of_group(sending_, group);
  for (int step = 1; step < size_; ++step) {
    const auto peer = static_cast<std::size_t>((rank_ + step) % size_);
    if (readable[peer] != nullptr)
      continue;
    const View chunk = chunk_of(blocks[peer], group);
    TRIREME_MPI(MPI_Isend(chunk.data, static_cast<int>(chunk.bytes()), MPI_BYTE,
                          static_cast<int>(peer), exchange_tag, comm_, &requests[peer]));
  }
}

void Exchange::receive_group(const View& own,
                             std::span<const std::byte* const> readable,
                             std::int64_t group) {
  const auto requests = of_group(receiving_, group);
  const auto bytes = static_cast<int>(chunk_of(own, group).bytes());
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + size_ - step) % size_;
    if (readable[static_cast<std::size_t>(peer)] == nullptr)
      TRIREME_MPI(MPI_Irecv(landing(group, peer), bytes, MPI_BYTE, peer, exchange_tag, comm_,
                            &requests[static_cast<std::size_t>(peer)]));
  }
}

void Exchange::add_group(const View& own,
                         std::span<const std::byte* const> readable,
                         std::int64_t group) {
  const View mine = chunk_of(own, group);
  const auto offset = static_cast<std::size_t>(mine.data - own.data);
  for (std::size_t r = 0; r < sources_.size(); ++r)
    sources_[r] = r == static_cast<std::size_t>(rank_) ? mine.data
                  : readable[r] != nullptr             ? readable[r] + offset
                                                       : landing(group, static_cast<int>(r));
  sum_(mine.data, sources_, mine.elements, mine.dtype);
}

void Exchange::reduce_scatter(std::span<const View> blocks,
                              std::span<const std::byte* const> readable) {
  const View own = blocks[static_cast<std::size_t>(rank_)];
  if (size_ == 1 || own.empty())
    return;
  const Abandon sends(sending_), receives(receiving_);
  const auto elements = static_cast<std::int64_t>(chunk_bytes_ / size_bytes(own.dtype));
  const std::int64_t total = (own.elements + elements - 1) / elements;
  constexpr auto depth = static_cast<std::int64_t>(groups);
  std::int64_t received = 0, expected = 0, sent = 0, started = 0;
  while (received < total || sent < total) {
    for (; expected < std::min(total, received + depth); ++expected)
      receive_group(own, readable, expected);
    for (; started < std::min(total, sent + depth); ++started)
      send_group(blocks, readable, started);
    bool moved = false;
    if (received < expected && completed(of_group(receiving_, received))) {
      add_group(own, readable, received);
      ++received;
      moved = true;
    }
    if (sent < started && completed(of_group(sending_, sent))) {
      ++sent;
      moved = true;
    }
    if (moved)
      progress_.moved();
    else
      progress_.pause();
  }
}

}  // namespace trireme::comm
