// SPDX-License-Identifier: Apache-2.0
// How a rank waits for its peers inside a collective: it spins, then sleeps between polls, up
// to a deadline. All collectives of a run wait like this, those of the World and those of buckets.
//
// Open MPI moves messages only inside calls to it, so waiting means polling. The cores are
// shared with compute threads, so polling must not keep one busy: after a few microseconds the
// waiter naps, each nap longer than the one before, up to a limit. After the first message that
// moves it spins again. It never calls sched_yield(): Linux 6.18 charges a whole time slice for
// every yield, and a waiter that yielded a hundred times runs after the compute thread of its core
// for a quarter of a second. Source: two hosts, 2 Gbit/s, input of tests/network/measure.py:
// with yields a third of the communication stayed exposed, without them a sixteenth.
//
// When nothing has moved for the deadline, the waiter asks the ranks (comm/control/watchdog.hpp),
// which throws a CommError naming the missing ranks, or returns, and the wait continues.
//
// 1. One collective at a time per object, from any thread; two at once are a ContractError.
// 2. While everything moves, no clock is read and nothing is sent.
// 3. Time in which this process itself was stopped (SIGSTOP, a suspended job) does not count.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/index.hpp"

#include "comm/control/watchdog.hpp"

namespace trireme::comm {

/// The waiting itself: spin, then nap.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  /// Something moved.
  void renew() {
    turns_ = 0;
    idle_ = false;
  }
  /// Nothing moved. Returns 0 while spinning, else how long to nap, at most
  /// `longest_us`.
  int turn(int longest_us);
  /// For how long nothing has moved, spinning aside; as of the last turn.
  [[nodiscard]] double idle_s() const {
    return idle_ ? std::chrono::duration<double>(last_ - since_).count() : 0;
  }

 private:
  int turns_ = 0;
  bool idle_ = false;
  Clock::time_point since_, last_;
};

class Progress {
 public:
  /// Borrows `watchdog`. All ranks make theirs in the same order.
  explicit Progress(Watchdog& watchdog) : watchdog_(watchdog), lane_(watchdog.add()) {}
  ~Progress() { watchdog_.remove(lane_); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Enters the next collective. Ends with the returned object.
  class Entered {
   public:
    explicit Entered(Progress& progress) : progress_(progress) {}
    ~Entered() { progress_.leave(); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    Progress& progress_;
  };
  /// `operation` is a literal.
  [[nodiscard]] Entered enter(const char* operation) { return enter({operation, {}, false}); }
  [[nodiscard]] Entered enter(const char* operation, BucketIndex bucket) {
    return enter({operation, bucket, true});
  }

  /// A message was completed.
  void moved() {
    patience_.renew();
    waited_s_ = 0;
    all_were_there_ = false;
  }
  /// No message was: spins or naps. Throws CommError naming the collective and the missing
  /// ranks after the deadline.
  void pause();
  /// The same in two halves, for a caller that sleeps by itself: if turn() is not 0, sleep so many
  /// microseconds and call after_nap().
  int turn(int longest_us) { return patience_.turn(longest_us); }
  void after_nap();

 private:
  [[nodiscard]] Entered enter(const Collective& collective);
  void leave();

  Watchdog& watchdog_;
  Watchdog::Lane& lane_;
  Patience patience_;
  double waited_s_ = 0;  // until the last check, since something moved
  bool all_were_there_ = false;
  std::atomic<bool> busy_{false};
};

}  // namespace trireme::comm
