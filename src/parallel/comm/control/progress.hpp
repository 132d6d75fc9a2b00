// SPDX-License-Identifier: Apache-2.0
// How a rank waits for its peers inside a collective: it spins, then sleeps between polls, up to a
// deadline. All collectives of a run wait in this way, those of the World and those of buckets.
//
// Open MPI makes progress only inside calls to it, so waiting means polling. The cores are shared
// with compute threads, so polling must not keep one busy: after a few microseconds the waiting
// thread sleeps, each time longer than before, up to a limit. After the next completed message it
// spins again. It never calls sched_yield(): Linux 6.18 charges a whole time slice for every yield,
// and a thread that has yielded a hundred times is not scheduled for a quarter of a second on a
// core with a compute thread. Source: two hosts, 2 Gbit/s, input of tests/network/measure.py: with
// yields a third of the communication was exposed, without them a sixteenth.
//
// On a slow link (1 Gbit/s delivers a message of 60 KB per 500 us) spinning only takes processor
// time from the compute threads. So the object estimates the usual wait between two messages of a
// collective; while the estimate is long, it sleeps that long without spinning first. The wait for
// the first message is excluded: that one is for the slowest rank. Source: two hosts, 1 Gbit/s,
// input of tests/network/measure.py: half of the processor time, and 0.93 of the time of a step.
//
// When no message has completed for the deadline, the watchdog (comm/control/watchdog.hpp) throws a
// CommError that names the missing ranks, or lets the wait continue.
//
// 1. One collective at a time per object, from any thread; a second one is a ContractError.
// 2. While messages complete, no clock is read and nothing is sent.
// 3. Time in which this process was stopped (SIGSTOP, a suspended job) does not count.
#pragma once

#include <atomic>
#include <chrono>

#include "base/index.hpp"
#include "base/on_exit.hpp"

#include "comm/control/watchdog.hpp"

namespace trireme::comm {

/// An estimate of how long a wait lasts, in microseconds after spinning. Only several long waits in
/// a row raise it: one late peer says nothing about the link.
class UsualWait {
 public:
  /// How long to sleep without spinning first; 0: spin first.
  [[nodiscard]] int sleep_us() const { return sleeps_at_once_ ? estimate_us_ : 0; }
  /// A wait ended after `sleeps` sleeps and `us` microseconds.
  void ended(int sleeps, int us);

 private:
  int estimate_us_ = 0;
  bool sleeps_at_once_ = false;
};

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  /// A message was completed.
  void reset() {
    polls_ = 0;
    idle_ = false;
  }
  /// No message was completed. Returns 0 while spinning, else the microseconds to sleep, at most
  /// `longest_us`. `at_once_us`: if not 0, the first sleep, without spinning.
  int next_us(int longest_us, int at_once_us = 0);
  /// Microseconds without a completed message, without the time of spinning.
  [[nodiscard]] int waited_us() const;
  /// The same in seconds, at the last call of next_us().
  [[nodiscard]] double idle_s() const {
    return idle_ ? std::chrono::duration<double>(last_ - since_).count() : 0;
  }

 private:
  int polls_ = 0;
  bool idle_ = false;
  Clock::time_point since_, last_;
};

class Progress {
 public:
  /// Borrows `watchdog`. All ranks, or those of a part (Watchdog::add()), construct their objects in
  /// the same order.
  explicit Progress(Watchdog& watchdog, int part = 0)
      : watchdog_(watchdog), lane_(watchdog.add(part)) {}
  ~Progress() { watchdog_.remove(lane_); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// While the result exists, the rank is inside the collective.
  [[nodiscard]] auto enter(const Collective& collective) {
    begin(collective);
    return OnExit([this] { leave(); });
  }
  /// `operation` is a literal.
  [[nodiscard]] auto enter(const char* operation) {
    return enter(Collective{operation, {}, false});
  }
  [[nodiscard]] auto enter(const char* operation, BucketIndex bucket) {
    return enter(Collective{operation, bucket, true});
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
  /// pause() in two halves, for a caller that sleeps in its own way: if backoff_us() is not 0,
  /// sleep this many microseconds and call after_sleep().
  int backoff_us(int longest_us) { return backoff_.next_us(longest_us); }
  void after_sleep();

 private:
  void begin(const Collective& collective);
  void leave();
  void learn();
  void renew() {
    backoff_.reset();
    polled_ = false;
    sleeps_ = 0;
    waited_s_ = 0;
    all_were_there_ = false;
  }

  Watchdog& watchdog_;
  Watchdog::Lane& lane_;
  Backoff backoff_;
  UsualWait usual_wait_;
  bool polled_ = false;  // by pause(), in the current wait
  int sleeps_ = 0;       // of pause() in the current wait
  bool first_ = true;    // no message of the collective has completed yet
  double waited_s_ = 0;  // from the last completed message to the last check
  bool all_were_there_ = false;
  std::atomic<bool> busy_{false};
};

}  // namespace trireme::comm
