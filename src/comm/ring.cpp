// SPDX-License-Identifier: Apache-2.0
#include "comm/ring.hpp"

#include <algorithm>
#include <span>

#include "comm/accumulate.hpp"
#include "comm/mpi_check.hpp"

namespace trireme::comm {
namespace {

constexpr int ring_tag = 11;
constexpr int exchange_tag = 12;
constexpr std::size_t smallest_exchange_bytes = 8192;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Messages still open when a collective fails refer to memory that is about to go away.
class Abandon {
 public:
  explicit Abandon(std::span<MPI_Request> requests) : requests_(requests) {}
  ~Abandon() {
    for (MPI_Request& request : requests_)
      if (request != MPI_REQUEST_NULL) {
        MPI_Cancel(&request);
        MPI_Request_free(&request);
      }
  }
  Abandon(const Abandon&) = delete;
  Abandon& operator=(const Abandon&) = delete;

 private:
  std::span<MPI_Request> requests_;
};

bool completed(MPI_Request& request) {
  int flag = 0;
  TRIREME_MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
  return flag != 0;
}

}  // namespace

/// Blocks are counted from `first_sent` downwards around the ring: step s sends block
/// first_sent - s and receives block first_sent - s - 1.
struct Ring::Walk {
  View full;
  std::int64_t block_elements;
  std::int64_t chunk_elements;
  std::int64_t num_chunks;  ///< per block
  int first_sent;
  int size;
  bool reduces;

  [[nodiscard]] View chunk(std::int64_t k, int blocks_back) const {
    const auto step = static_cast<int>(k / num_chunks);
    const std::int64_t begin = k % num_chunks * chunk_elements;
    const int block = (first_sent - step - blocks_back + 2 * size) % size;
    return full.slice(block * block_elements + begin,
                      std::min(chunk_elements, block_elements - begin));
  }
  [[nodiscard]] View sent(std::int64_t k) const { return chunk(k, 0); }
  [[nodiscard]] View received(std::int64_t k) const { return chunk(k, 1); }
};

Ring::Ring(MPI_Comm comm, Progress& progress, device::Device& device, std::size_t chunk_bytes)
    : comm_(comm), progress_(progress), chunk_bytes_(chunk_bytes) {
  TRIREME_EXPECT(chunk_bytes >= 64 && chunk_bytes % 64 == 0 && chunk_bytes <= (1U << 30U),
                 "chunks of {} bytes", chunk_bytes);
  TRIREME_MPI(MPI_Comm_rank(comm_, &rank_));
  TRIREME_MPI(MPI_Comm_size(comm_, &size_));
  const auto num_ranks = static_cast<std::size_t>(size_);
  // A group holds one chunk of every peer; many ranks share about four chunks' worth.
  exchange_bytes_ = std::max(4 * chunk_bytes / num_ranks / 64 * 64,
                             std::min(chunk_bytes, smallest_exchange_bytes));
  exchange_bytes_ = std::min(exchange_bytes_, chunk_bytes);
  if (size_ > 1) {
    ring_scratch_ = device.allocate(window * chunk_bytes_, "ring messages");
    exchange_scratch_ = device.allocate(groups * num_ranks * exchange_bytes_, "exchange messages");
  }
  sending_.fill(MPI_REQUEST_NULL);
  receiving_.fill(MPI_REQUEST_NULL);
  for (std::size_t g = 0; g < groups; ++g) {
    group_sending_[g].assign(num_ranks, MPI_REQUEST_NULL);
    group_receiving_[g].assign(num_ranks, MPI_REQUEST_NULL);
  }
  sources_.resize(num_ranks);
}

void Ring::run(const Walk& walk) {
  const Abandon sends(sending_), receives(receiving_);
  const int right = (rank_ + 1) % size_, left = (rank_ + size_ - 1) % size_;
  const std::int64_t total = walk.num_chunks * (size_ - 1);
  constexpr auto depth = static_cast<std::int64_t>(window);
  const auto slot = [](std::int64_t k) { return static_cast<std::size_t>(k % depth); };
  const auto landing = [&](std::int64_t k) {
    return walk.reduces ? ring_scratch_.data() + slot(k) * chunk_bytes_ : walk.received(k).data;
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

void Ring::reduce_scatter(View full) {
  TRIREME_EXPECT(full.dtype == DType::f32, "a ring sum of {}", name(full.dtype));
  const std::int64_t block = full.elements / size_;
  if (size_ == 1 || block == 0)
    return;
  const auto chunk = static_cast<std::int64_t>(chunk_bytes_ / size_bytes(full.dtype));
  run({full, block, chunk, ceil_div(block, chunk), rank_ - 1, size_, true});
}

void Ring::all_gather(View full) {
  const std::int64_t block = full.elements / size_;
  if (size_ == 1 || block == 0)
    return;
  const auto chunk = static_cast<std::int64_t>(chunk_bytes_ / size_bytes(full.dtype));
  run({full, block, chunk, ceil_div(block, chunk), rank_, size_, false});
}

std::byte* Ring::scratch_of(std::size_t slot, int peer) const {
  return exchange_scratch_.data() +
         (slot * static_cast<std::size_t>(size_) + static_cast<std::size_t>(peer)) *
             exchange_bytes_;
}

void Ring::send_group(View full, std::int64_t group, std::int64_t chunk_elements) {
  const std::int64_t block = full.elements / size_;
  const std::int64_t begin = group * chunk_elements;
  const std::int64_t count = std::min(chunk_elements, block - begin);
  auto& requests = group_sending_[static_cast<std::size_t>(group) % groups];
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;
    const View chunk = full.slice(peer * block + begin, count);
    TRIREME_MPI(MPI_Isend(chunk.data, static_cast<int>(chunk.bytes()), MPI_BYTE, peer, exchange_tag,
                          comm_, &requests[static_cast<std::size_t>(peer)]));
  }
}

void Ring::receive_group(std::int64_t block_elements, std::int64_t group, DType dtype) {
  const auto chunk_elements = static_cast<std::int64_t>(exchange_bytes_ / size_bytes(dtype));
  const std::int64_t count = std::min(chunk_elements, block_elements - group * chunk_elements);
  const std::size_t slot = static_cast<std::size_t>(group) % groups;
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + size_ - step) % size_;
    TRIREME_MPI(MPI_Irecv(scratch_of(slot, peer),
                          static_cast<int>(static_cast<std::size_t>(count) * size_bytes(dtype)),
                          MPI_BYTE, peer, exchange_tag, comm_,
                          &group_receiving_[slot][static_cast<std::size_t>(peer)]));
  }
}

bool Ring::finished(std::vector<MPI_Request>& requests) {
  int flag = 0;
  TRIREME_MPI(MPI_Testall(size_, requests.data(), &flag, MPI_STATUSES_IGNORE));
  return flag != 0;
}

void Ring::reduce_scatter_ordered(View full) {
  TRIREME_EXPECT(full.dtype == DType::f32 || full.dtype == DType::bf16, "a sum of {}",
                 name(full.dtype));
  const std::int64_t block = full.elements / size_;
  if (size_ == 1 || block == 0)
    return;
  const Abandon s0(group_sending_[0]), s1(group_sending_[1]), s2(group_sending_[2]);
  const Abandon r0(group_receiving_[0]), r1(group_receiving_[1]), r2(group_receiving_[2]);
  static_assert(groups == 3);
  const auto chunk = static_cast<std::int64_t>(exchange_bytes_ / size_bytes(full.dtype));
  const std::int64_t total = ceil_div(block, chunk);
  constexpr auto depth = static_cast<std::int64_t>(groups);
  const auto slot = [](std::int64_t g) { return static_cast<std::size_t>(g % depth); };
  const View own = full.slice(rank_ * block, block);
  std::int64_t received = 0, expected = 0, sent = 0, started = 0;
  while (received < total || sent < total) {
    for (; expected < std::min(total, received + depth); ++expected)
      receive_group(block, expected, full.dtype);
    for (; started < std::min(total, sent + depth); ++started) send_group(full, started, chunk);
    bool moved = false;
    if (received < expected && finished(group_receiving_[slot(received)])) {
      const std::int64_t begin = received * chunk;
      const View mine = own.slice(begin, std::min(chunk, block - begin));
      for (int r = 0; r < size_; ++r)
        sources_[static_cast<std::size_t>(r)] =
            r == rank_ ? mine.data : scratch_of(slot(received), r);
      sum_in_order(mine.data, sources_, mine.elements, mine.dtype);
      ++received;
      moved = true;
    }
    if (sent < started && finished(group_sending_[slot(sent)])) {
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
