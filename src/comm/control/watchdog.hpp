// SPDX-License-Identifier: Apache-2.0
// The watchdog: where every rank is, and the question to all ranks when a collective makes no
// progress.
//
// A rank may wait in several collectives at once: its main thread in one of the World, its
// communication thread in that of a bucket. Each of these places is a lane
// (comm/control/progress.hpp makes them), and the ranks' lanes correspond. Entering a collective is
// noted here and costs no message. When nothing has moved in a lane for the deadline, its waiter
// queries the ranks: every other rank is asked how far it has come in that lane. A separate thread,
// the responder, answers, so a rank answers whatever its other threads do, and only a rank that is
// gone, stopped or disconnected stays silent. There are four findings:
//
//   some rank is silent         CommError that names it, and the places of the late ones
//   some rank is at work        go on waiting: rank 0 reads a text or writes a file, for example
//   a rank is late              CommError that names it and where it is: in another collective, or
//                               in none
//   all are there               go on once: the last one may have come just now. If nothing moves
//                               until the deadline passes again, CommError
//
// A rank is silent when it has not answered for a tenth of the deadline, at least 5 s: on a virtual
// machine a healthy rank may get no processor for seconds. Time in which the caller itself
// was stopped does not count.
//
// 1. Nothing is sent while collectives go well.
// 2. Being at work (World::AtWork) stretches the deadline for all ranks, as long as all ranks
//    answer.
// 3. When one lane has failed, the others of this rank fail too, at their next nap.
// 4. Any thread may call any member; one check at a time runs per rank.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/index.hpp"

#include "comm/config.hpp"
#include "comm/control/owned_comm.hpp"

namespace trireme::comm {

/// A collective, as messages name it. A bucket's has a number.
struct Collective {
  const char* operation = "";  ///< a literal
  BucketIndex bucket{};
  bool of_bucket = false;

  /// "reduce_scatter of bucket 3", "all_reduce of the step's sums", "a sum over the ranks".
  [[nodiscard]] std::string text() const;
};

class Watchdog {
 public:
  /// Collective over `parent`. `hosts`: of each rank.
  Watchdog(MPI_Comm parent, std::vector<std::string> hosts);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// How far this rank has come in one lane.
  struct Lane {
    std::int64_t id = 0;
    std::int64_t sequence = 0;  ///< collectives entered
    bool inside = false;        ///< of the latest
    Collective collective;
  };
  /// All ranks add lanes in the same order, without communication. Returns what stays valid
  /// until remove().
  Lane& add();
  void remove(Lane& lane);
  void enter(Lane& lane, const Collective& collective);
  void leave(Lane& lane);
  /// Collectives entered so far, in all lanes that are still there.
  [[nodiscard]] std::int64_t num_entered() const;

  /// Nested; see World::AtWork.
  void begin_work() { works_.fetch_add(1, std::memory_order_relaxed); }
  void end_work() { works_.fetch_sub(1, std::memory_order_relaxed); }

  enum class Finding : std::uint8_t { go_on, no_progress };
  /// Nothing has moved in `lane` for `idle_s`. Throws CommError, or returns whether to wait on.
  /// `all_were_there` is kept by the caller from one call to the next, false since something moved.
  Finding check_ranks(const Lane& lane, double idle_s, bool& all_were_there);
  [[noreturn]] void fail(const Lane& lane, double idle_s, const std::string& why);

  /// Throws when another lane of this rank has failed.
  void check() const {
    if (failed_.load(std::memory_order_acquire))
      fail_again();
  }

  [[nodiscard]] double deadline_s() const { return deadline_s_.load(std::memory_order_relaxed); }
  void limit_waiting(double deadline_s) {
    deadline_s_.store(deadline_s, std::memory_order_relaxed);
  }

 private:
  struct Question {
    std::int64_t call, lane, sequence;
  };
  struct Answer {
    enum State : std::int64_t { silent, late, there, at_work };
    std::int64_t call = 0;
    State state = silent;
    std::array<char, 240> place{};  ///< "in reduce_scatter of bucket 3", or empty
  };

  void serve();
  void answer_questions();
  [[nodiscard]] Answer answer_to(const Question& question) const;
  [[nodiscard]] std::vector<Answer> ask(const Question& question);
  [[nodiscard]] std::string describe(const std::vector<Answer>& answers, Answer::State state) const;
  [[noreturn]] void fail_again() const;

  OwnedComm comm_;
  const std::vector<std::string> hosts_;
  const int rank_;
  const int size_;
  std::atomic<double> deadline_s_{default_deadline_s};
  std::atomic<int> works_{0};
  std::atomic<bool> failed_{false};

  mutable std::mutex mutex_;  // guards the lanes and the reason
  std::list<Lane> lanes_;     // the first one is the World's
  std::int64_t next_lane_ = 0;
  std::string failed_in_, why_;

  std::mutex calling_;  // guards what follows: the caller's side
  std::int64_t num_calls_ = 0;
  std::vector<Question> questions_;  // by rank
  std::vector<MPI_Request> asking_;  // by rank

  // The responder's side.
  std::vector<Answer> answers_;         // by rank
  std::vector<MPI_Request> answering_;  // by rank
  std::mutex stopping_mutex_;
  std::condition_variable stopping_changed_;
  bool stopping_ = false;
  std::thread responder_;  // last: starts when all else is ready
};

}  // namespace trireme::comm
