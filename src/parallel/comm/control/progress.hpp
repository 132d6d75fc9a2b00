// SPDX-License-Identifier: Apache-2.0
// How a rank waits for its peers inside a collective: it spins, then sleeps between polls, up to a
// deadline. All collectives of a run wait in this way, those of the World and those of buckets.
//
// Open MPI makes progress only inside calls to it, so waiting means polling. The cores are shared
// with compute threads, so polling must not keep one busy: after a few microseconds the waiter
// sleeps, each time longer than before, up to a limit. After the next completed message it spins
// again. It never calls sched_yield(): Linux 6.18 charges a whole time slice for every yield, and a
// waiter that has yielded a hundred times is not scheduled for a quarter of a second on a core with
// a compute thread. Source: two hosts, 2 Gbit/s, input of tests/network/measure.py: with yields a
// third of the communication stayed exposed, without them a sixteenth.
//
// Where messages take longer than spinning lasts (a link of 1 Gbit/s delivers one of 60 KB per 500
// us), spinning only takes time from the threads that compute. So the waiter keeps an estimate of
// its usual wait between two messages of a collective, and sleeps that long at once while the
// estimate is long. It does neither before the first message: that wait is for the slowest rank.
// Source: two hosts, 1 Gbit/s, input of tests/network/measure.py: the thread that waits takes half
// of the processor time, and a step 0.93 of its time.
//
// When no message has completed for the deadline, the waiter asks the watchdog
// (comm/control/watchdog.hpp), which throws a CommError naming the missing ranks, or lets the wait
// continue.
//
// 1. One collective at a time per object, from any thread; two at the same time are a
//    ContractError.
// 2. While messages complete, no clock is read and nothing is sent.
// 3. Time in which this process itself was stopped (SIGSTOP, a suspended job) does not count.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/index.hpp"

#include "comm/control/watchdog.hpp"

namespace trireme::comm {

/// An estimate of how long a wait lasts, in microseconds after spinning. Several long waits in a row
/// raise it, one does not: a peer that is late once says nothing about the link.
class UsualWait {
 public:
  /// How long to sleep at once; 0: spin first.
  [[nodiscard]] int nap_us() const { return naps_at_once_ ? estimate_us_ : 0; }
  /// A wait ended after `naps` sleeps and `us` microseconds.
  void ended(int naps, int us);

 private:
  int estimate_us_ = 0;
  bool naps_at_once_ = false;
};

/// The back-off: spin first, then sleep.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  /// A message was completed.
  void renew() {
    turns_ = 0;
    idle_ = false;
  }
  /// No message was completed. Returns 0 while spinning, else the microseconds to sleep, at most
  /// `longest_us`. `at_once_us`: if not 0, the first sleep, without spinning.
  int turn(int longest_us, int at_once_us = 0);
  /// Microseconds without a completed message, without the time of spinning.
  [[nodiscard]] int waited_us() const;
  /// Seconds without a completed message, without the time of spinning, at the last turn.
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
  /// Borrows `watchdog`. All ranks construct their objects in the same order.
  explicit Progress(Watchdog& watchdog) : watchdog_(watchdog), lane_(watchdog.add()) {}
  ~Progress() { watchdog_.remove(lane_); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The time in a collective. Ends with the object that enter() returns.
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
    if (polled_)
      learn();
    first_ = false;
    renew();
  }
  /// No message was completed: spins or sleeps. After the deadline throws CommError naming the
  /// collective and the missing ranks.
  void pause();
  /// The same in two halves, for a caller that sleeps itself: if turn() is not 0, sleep this many
  /// microseconds and call after_nap().
  int turn(int longest_us) { return patience_.turn(longest_us); }
  void after_nap();

 private:
  [[nodiscard]] Entered enter(const Collective& collective);
  void leave();
  void learn();
  void renew() {
    patience_.renew();
    polled_ = false;
    naps_ = 0;
    waited_s_ = 0;
    all_were_there_ = false;
  }

  Watchdog& watchdog_;
  Watchdog::Lane& lane_;
  Patience patience_;
  UsualWait usual_wait_;
  bool polled_ = false;  // by pause(), in the wait under way
  int naps_ = 0;         // of pause() in it
  bool first_ = true;    // no message of the collective has completed yet
  double waited_s_ = 0;  // from the last completed message to the last check
  bool all_were_there_ = false;
  std::atomic<bool> busy_{false};
};

}  // namespace trireme::comm
