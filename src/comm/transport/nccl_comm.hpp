// SPDX-License-Identifier: Apache-2.0
// One NCCL communicator, its errors and the thread that monitors it.
//
// A collective of NCCL runs on the GPU: when a peer is gone, its kernel never ends, and a thread
// that waits for the stream waits forever. So a monitor thread polls, every 0.1 s, NCCL's
// asynchronous error and the events after the collectives. When the oldest collective has not
// ended for the deadline it asks the ranks (comm/control/watchdog.hpp), as a waiting host does:
// a rank that is silent or late is named, one that is at work is waited for, and if all have given
// the collective to their GPUs it may take the deadline once more. Then, and on an error, it prints
// which collective it was and NCCL's own message, aborts the communicator and ends the job: no
// other thread is able to.
//
// 1. The communicator is non-blocking: calls return at once, and wait() polls until NCCL is done
//    with them. All calls hold the lock of this object, so that the monitor never aborts while
//    another thread is inside NCCL. If the lock cannot be had, it ends the job without aborting.
// 2. Collectives are entered in stream order. The events come from a ring made at construction; a
//    full ring drops its oldest entry only when that has ended, else the caller waits for it.
// 3. Teardown: the monitor ends, the communicator is finalized (which waits for what is enqueued)
//    and destroyed. While an exception goes by it is aborted instead.
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
  /// Collective. `most_blocks` is the deck's bound on the multiprocessors that NCCL takes, 0: its
  /// own choice. The world's deadline holds for the construction as well.
  NcclComm(World& world, device::Device& device, int most_blocks);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Runs `call` on the communicator and waits until NCCL has taken it. Throws CommError with
  /// `statement`, NCCL's name for the error and its last message.
  void run(const std::string& statement, const std::function<ncclResult_t(ncclComm_t)>& call);
  /// The same for a collective, which ends after what `stream` holds, and which is then monitored.
  void collective(const char* operation,
                  BucketIndex bucket,
                  device::Stream& stream,
                  const std::function<ncclResult_t(ncclComm_t)>& call);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    const char* operation = "";
    BucketIndex bucket{};
    std::unique_ptr<device::Event> end;
  };
  static constexpr std::size_t ring_size = 512;

  /// Requires the lock. Polls while NCCL is in progress.
  void wait(ncclResult_t status, const std::string& statement);
  [[nodiscard]] std::string words(ncclResult_t status) const;
  [[nodiscard]] std::string last_words() const;
  void watch();
  /// The collective, as messages name it. Requires the lock, and an entry.
  [[nodiscard]] std::string oldest() const;
  /// The error that NCCL reports now, or nothing; drops entries that have ended. Requires the lock.
  std::string trouble();
  /// Whether nothing has ended for the deadline. Requires the lock.
  [[nodiscard]] bool stands_still() const;
  /// What is wrong when nothing has ended for the deadline, or nothing. Gives the lock away while
  /// others are asked.
  std::string check_ranks(std::unique_lock<std::timed_mutex>& lock);
  void end_job(const std::string& trouble, std::unique_lock<std::timed_mutex>& lock);

  World& world_;
  device::Device& device_;
  const double deadline_s_;
  Watchdog* const watchdog_;    // null in a world of one
  Watchdog::Lane* const lane_;  // likewise; sequence is head_
  ncclComm_t comm_ = nullptr;
  std::array<Entry, ring_size> ring_;  // guarded, as all below
  std::size_t head_ = 0, tail_ = 0;    // entered and ended so far
  Clock::time_point moved_ = Clock::now();
  Clock::time_point patient_since_ = moved_;  // the last check, when it came later
  bool all_were_there_ = false;               // at the last check
  bool stopping_ = false;
  std::timed_mutex mutex_;
  std::condition_variable_any wake_;
  std::thread monitor_;  // last: starts when all else is ready
};

}  // namespace trireme::comm
