// SPDX-License-Identifier: Apache-2.0
// How a rank waits for its peers inside a collective: attentive at first, then out of the way, and
// not for ever.
//
// Open MPI moves messages only while somebody calls it, so waiting means polling. The cores are
// shared with compute threads, so polling must not keep one busy: after a few microseconds the
// waiter naps, each nap longer than the one before, up to a limit. The first message that moves
// makes it attentive again. It never calls sched_yield(): Linux 6.18 books a whole time slice for
// every yield, and a waiter that yielded a hundred times stands behind the compute thread of its
// core for a quarter of a second. Source: two hosts, 2 Gbit/s, input of tests/network/measure.py:
// with yields a third of the communication stayed exposed, without them a sixteenth.
//
// When nothing has moved for the deadline, the waiter calls the roll: it asks every rank which
// collective it is in. Ranks that wait answer; who does not answer, or is still in an earlier
// collective, never arrived, and the CommError names them.
//
// 1. One collective at a time per object, from any thread; two at once are a ContractError.
// 2. Nothing is sent for the roll while collectives go well.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/index.hpp"

#include "comm/mpi_world.hpp"

namespace trireme::comm {

/// The waiting itself: spin, then nap.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Patience(double deadline_s);
  /// Something moved.
  void renew() {
    turns_ = 0;
    idle_ = false;
  }
  /// Nothing moved. Returns 0 while spinning, else how long to nap, at most
  /// `longest_us`.
  int turn(int longest_us);
  /// For how long nothing has moved, spinning aside.
  [[nodiscard]] double idle_s() const;
  [[nodiscard]] bool expired() const { return idle_s() > deadline_s_; }
  [[nodiscard]] double deadline_s() const { return deadline_s_; }

 private:
  double deadline_s_;
  int turns_ = 0;
  bool idle_ = false;
  Clock::time_point since_;
};

class Progress {
 public:
  /// Collective over `parent`. `deadline_s`: seconds without any movement until the roll is
  /// called.
  Progress(MPI_Comm parent, std::vector<std::string> hosts, double deadline_s);

  /// Enters the next collective; `operation` is a literal. Ends with the returned object.
  class Entered {
   public:
    explicit Entered(Progress& progress) : progress_(progress) {}
    ~Entered() { progress_.busy_.store(false, std::memory_order_release); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    Progress& progress_;
  };
  [[nodiscard]] Entered enter(const char* operation, BucketIndex bucket);

  /// A message was completed.
  void moved() { patience_.renew(); }
  /// No message was: spins or naps. Throws CommError naming the collective and the missing
  /// ranks after the deadline.
  void pause();
  /// The same in two halves, for who naps in its own way: if turn() is not 0, nap so many
  /// microseconds and call after_nap().
  int turn(int longest_us) { return patience_.turn(longest_us); }
  void after_nap();

 private:
  void answer_questions();
  [[noreturn]] void call_the_roll();

  OwnedComm comm_;
  std::vector<std::string> hosts_;
  Patience patience_;
  int rank_;
  int size_;
  std::atomic<bool> busy_{false};
  std::int64_t sequence_ = 0;
  const char* operation_ = "";
  BucketIndex bucket_{};
};

/// "reduce_scatter of bucket 3".
std::string collective_text(const char* operation, BucketIndex bucket);
/// The CommError of a collective that waited in vain. `missing`: ranks that never arrived; empty
/// when all did and the data stood still.
[[noreturn]] void fail_waiting(const std::string& collective,
                               double idle_s,
                               const std::vector<int>& missing,
                               const std::vector<std::string>& hosts);

}  // namespace trireme::comm
