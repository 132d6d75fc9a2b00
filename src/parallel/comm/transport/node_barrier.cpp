// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/node_barrier.hpp"

#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/control/mpi_comm.hpp"

namespace trireme::comm {
namespace {

/// Reads of the counter per poll of the Backoff; about 1 us, most of it the pauses between them.
constexpr int reads_per_poll = 32;
/// A sleeper is woken after the store; this timeout only serves to check the deadline.
constexpr int longest_wait_us = 20'000;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// A shared, not a private futex: the waiters are other processes.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value, int microseconds) {
  const timespec limit{0, microseconds * 1000L};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool behind(std::uint32_t arrivals, std::uint32_t point) {
  return static_cast<std::int32_t>(arrivals - point) < 0;
}

}  // namespace

NodeBarrier::NodeBarrier(MPI_Comm node, MpiWorld& world, Progress& progress)
    : segment_(node, world, sizeof(Counter), "the node's barrier"),
      progress_(progress),
      rank_(rank_of(node)),
      size_(size_of(node)) {}

void NodeBarrier::arrive() {
  Counter& mine = counter(rank_);
  mine.arrivals.store(++point_, std::memory_order_seq_cst);
  if (mine.sleepers.load(std::memory_order_seq_cst) != 0)
    wake_all(mine.arrivals);
}

void NodeBarrier::wait_for(int local_rank) {
  Counter& theirs = counter(local_rank);
  for (;;) {
    for (int read = 0; read < reads_per_poll; ++read) {
      if (!behind(theirs.arrivals.load(std::memory_order_acquire), point_)) {
        progress_.moved();
        return;
      }
      relax();
    }
    const int sleep_us = progress_.backoff_us(longest_wait_us);
    if (sleep_us == 0)
      continue;
    theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = theirs.arrivals.load(std::memory_order_seq_cst);
    if (behind(seen, point_))
      sleep_while(theirs.arrivals, seen, sleep_us);
    theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    progress_.after_sleep();
  }
}

void NodeBarrier::arrive_and_wait() {
  arrive();
  for (int step = 1; step < size_; ++step) wait_for((rank_ + step) % size_);
}

}  // namespace trireme::comm
