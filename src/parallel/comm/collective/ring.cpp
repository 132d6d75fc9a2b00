// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/ring.hpp"

#include <algorithm>
#include <utility>

#include "base/round_up.hpp"

#include "comm/collective/accumulate.hpp"
#include "comm/control/requests.hpp"

namespace trireme::comm {
namespace {

constexpr int ring_tag = 11;

/// Bytes of scratch and active messages per direction. Source: 4 MiB use 95 % of a 2 Gbit/s link.
constexpr std::size_t window_bytes = std::size_t{4} << 20U;
constexpr std::size_t least_window = 8;
constexpr std::size_t largest_window = 64;

}  // namespace

/// Step s sends block first_sent - s and receives block first_sent - s - 1, around the ring.
struct Ring::Walk {
  View full;
  std::int64_t block_elements;
  const std::vector<int>& owners;
  std::int64_t chunk_elements;
  int first_sent;
  bool reduces;
  std::int64_t num_chunks = divided_up(block_elements, chunk_elements);  ///< per block

  [[nodiscard]] View chunk(std::int64_t k, int blocks_back) const {
    const auto size = static_cast<std::int64_t>(owners.size());
    const std::int64_t begin = k % num_chunks * chunk_elements;
    const std::int64_t block = (first_sent - k / num_chunks - blocks_back + 2 * size) % size;
    return full.slice(owners[static_cast<std::size_t>(block)] * block_elements + begin,
                      std::min(chunk_elements, block_elements - begin));
  }
  [[nodiscard]] View sent(std::int64_t k) const { return chunk(k, 0); }
  [[nodiscard]] View received(std::int64_t k) const { return chunk(k, 1); }
};

Ring::Ring(MPI_Comm comm,
           Progress& progress,
           std::vector<int> owners,
           device::Device& device,
           std::size_t chunk_bytes)
    : comm_(comm),
      progress_(progress),
      owners_(std::move(owners)),
      rank_(rank_of(comm)),
      size_(size_of(comm)),
      chunk_bytes_(chunk_bytes) {
  TRIREME_EXPECT(owners_.size() == static_cast<std::size_t>(size_), "{} owners for {} ranks",
                 owners_.size(), size_);
  const std::size_t window = std::clamp(window_bytes / chunk_bytes_, least_window, largest_window);
  if (size_ > 1)
    scratch_ = device.allocate(window * chunk_bytes_, "ring messages");
  sending_.assign(window, MPI_REQUEST_NULL);
  receiving_.assign(window, MPI_REQUEST_NULL);
}

void Ring::run(const Walk& walk) {
  const CancelOnExit sends(sending_), receives(receiving_);
  const int right = (rank_ + 1) % size_, left = (rank_ + size_ - 1) % size_;
  const std::int64_t total = walk.num_chunks * (size_ - 1);
  const auto depth = static_cast<std::int64_t>(sending_.size());
  const auto slot = [depth](std::int64_t k) { return static_cast<std::size_t>(k % depth); };
  const auto landing = [&](std::int64_t k) {
    return walk.reduces ? scratch_.data() + slot(k) * chunk_bytes_ : walk.received(k).data;
  };
  std::int64_t received = 0, expected = 0, sent = 0, started = 0;
  while (received < total || sent < total) {
    for (; expected < std::min(total, received + depth); ++expected)
      TRIREME_MPI(MPI_Irecv(landing(expected), static_cast<int>(walk.received(expected).bytes()),
                            MPI_BYTE, left, ring_tag, comm_, &receiving_[slot(expected)]));
    for (; started < std::min({total, sent + depth, received + walk.num_chunks}); ++started) {
      const View chunk = walk.sent(started);
      TRIREME_MPI(MPI_Isend(chunk.data, static_cast<int>(chunk.bytes()), MPI_BYTE, right, ring_tag,
                            comm_, &sending_[slot(started)]));
    }
    bool moved = false;
    if (received < expected && completed(receiving_[slot(received)])) {
      if (walk.reduces) {
        const View chunk = walk.received(received);
        add_to(chunk.as<float>(), reinterpret_cast<const float*>(landing(received)),
               chunk.elements);
      }
      ++received;
      moved = true;
    }
    if (sent < started && completed(sending_[slot(sent)])) {
      ++sent;
      moved = true;
    }
    if (moved)
      progress_.moved();
    else
      progress_.pause();
  }
}

void Ring::reduce_scatter(View full, std::int64_t shard) {
  if (size_ == 1 || shard == 0)
    return;
  TRIREME_EXPECT(full.dtype == DType::f32, "a ring sum of {}", name(full.dtype));
  run({full, shard, owners_, static_cast<std::int64_t>(chunk_bytes_ / sizeof(float)), rank_ - 1,
       true});
}

void Ring::all_gather(View full, std::int64_t shard) {
  if (size_ > 1 && shard > 0)
    run({full, shard, owners_, static_cast<std::int64_t>(chunk_bytes_ / size_bytes(full.dtype)),
         rank_, false});
}

}  // namespace trireme::comm
