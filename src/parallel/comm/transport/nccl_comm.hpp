// SPDX-License-Identifier: Apache-2.0
// One NCCL communicator, its errors and the thread that monitors it.
//
// A collective of NCCL runs on the GPU. When a peer has ended, the kernel never ends, and a thread
// that waits for the stream waits forever. So a monitor thread polls, every 0.1 s, NCCL's
// asynchronous error and the events after the collectives. When the oldest collective has not ended
// for the deadline, the monitor queries the ranks (comm/control/watchdog.hpp), as a waiting host
// thread does. It names a rank that is silent or late, continues if one is at work, and continues
// for one more deadline if all ranks have enqueued the collective. After that, and on an error, it
// prints the collective and NCCL's own message, aborts the communicator and ends the job. After a
// lost rank, if the others continue, it only aborts the communicator: enqueued collectives end with
// undefined results, and the next call throws LostRank. A thread that has waited for the GPU must
// then call World::expect_no_loss() before it uses the results.
//
// 1. The communicator is non-blocking: calls return at once, and wait() polls until NCCL has
//    completed them. All calls hold the lock of this object, so that the monitor never aborts while
//    another thread is inside NCCL. If the monitor cannot acquire the lock, it ends the job without
//    aborting.
// 2. Collectives are recorded in stream order. Their events are in a ring that is allocated at
//    construction; if it is full, the caller waits until the oldest entry has ended.
// 3. Teardown: the monitor ends, the communicator is finalized (which waits for enqueued work) and
//    destroyed. During an exception and after a lost rank it is aborted instead.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <nccl.h>

#include "base/index.hpp"
#include "device/device.hpp"

#include "comm/control/watchdog.hpp"
#include "comm/control/world.hpp"

namespace trireme::comm {

class NcclComm {
 public:
  /// Collective. `most_blocks` is the deck's limit on the multiprocessors that NCCL uses; 0: NCCL
  /// chooses. The world's deadline applies to the construction as well.
  NcclComm(World& world, device::Device& device, int most_blocks);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Runs `call` on the communicator and waits until NCCL has accepted it. Throws CommError with
  /// `statement`, NCCL's name for the error and its last message.
  void run(const std::string& statement, const std::function<ncclResult_t(ncclComm_t)>& call);
  /// The same for a collective, which is enqueued on `stream` and then monitored.
  void collective(const char* operation,
                  BucketIndex bucket,
                  device::Stream& stream,
                  const std::function<ncclResult_t(ncclComm_t)>& call);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Collective collective;
    std::unique_ptr<device::Event> end;
  };
  static constexpr std::size_t ring_size = 512;

  /// Requires the lock. Polls while NCCL is in progress.
  void wait(ncclResult_t status, const std::string& statement);
  /// After an error: whether a rank is lost and the others continue. May wait 10 s for the news.
  [[nodiscard]] bool loses_a_rank() const;
  /// Throws LostRank, with the communicator aborted. Requires the lock, like abort().
  void expect_all_ranks(const std::string& statement);
  void abort();
  [[nodiscard]] std::string error_text(ncclResult_t status) const;
  [[nodiscard]] std::string last_message() const;
  void watch();
  /// The oldest collective that has not ended. Requires the lock, and an entry.
  [[nodiscard]] const Collective& oldest() const { return ring_[tail_ % ring_size].collective; }
  /// The error that NCCL reports, or "". Drops entries that have ended. Requires the lock.
  std::string find_error();
  /// Call when no collective has ended for the deadline. The error, or "" to continue. Releases the
  /// lock while it queries other ranks.
  std::string check_ranks(std::unique_lock<std::timed_mutex>& lock);

  World& world_;
  device::Device& device_;
  const double deadline_s_;
  Watchdog* const watchdog_;           // null in a world of one
  Watchdog::Lane* const lane_;         // likewise; sequence is head_
  ncclComm_t comm_ = nullptr;          // null after a lost rank
  std::array<Entry, ring_size> ring_;  // guarded by mutex_, like all below
  std::size_t head_ = 0, tail_ = 0;    // numbers of collectives recorded and ended
  Clock::time_point moved_ = Clock::now();
  Clock::time_point last_check_ = moved_;  // or moved_, if that is later
  bool all_were_there_ = false;            // at the last check
  bool stopping_ = false;
  std::timed_mutex mutex_;
  std::condition_variable_any wake_;
  std::thread monitor_;  // last: starts when all other members are ready
};

}  // namespace trireme::comm
