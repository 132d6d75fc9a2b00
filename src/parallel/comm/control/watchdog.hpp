// SPDX-License-Identifier: Apache-2.0
// The watchdog records which collective this rank is in, and queries all ranks when a collective
// makes no progress.
//
// A rank may wait in several collectives at once: its main thread in one of the World, its
// communication thread in one of a bucket. Each of these threads has a lane (created by
// comm/control/progress.hpp), and the lanes of all ranks correspond. Entering a collective is
// recorded here without a message. When a lane has made no progress for the deadline, its waiting
// thread asks every other rank how many collectives it has entered in that lane. A separate thread,
// the responder, answers whatever the rank's other threads do; only a rank that has ended, is
// stopped or is disconnected stays silent. There are four findings:
//
//   some rank is silent         CommError that names it and the late ranks, with their collectives
//   some rank is at work        continue: rank 0 reads a text or writes a file, for example
//   some rank is late           CommError that names it and the collective that it is in, if any
//   all ranks have entered it   continue once, since the last rank may have just entered; CommError
//                               if there is no progress until the deadline passes again
//
// A rank is silent when it has not answered for a tenth of the deadline, at least 5 s: on a virtual
// machine a healthy rank may get no processor for seconds. Time in which the caller was
// stopped does not count.
//
// 1. Nothing is sent while collectives make progress.
// 2. Being at work (World::AtWork) extends the deadline for all ranks, as long as all ranks answer.
// 3. The responder notices a lost rank within 50 ms (comm/control/mpi_comm.hpp); all lanes fail.
// 4. When one lane has failed, the other lanes of this rank fail too, when they next sleep.
// 5. Any thread may call any member; each rank runs one check at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/index.hpp"

#include "comm/config.hpp"
#include "comm/control/mpi_comm.hpp"

namespace trireme::comm {

/// A collective, as error messages name it: with the number of its bucket, if any.
struct Collective {
  const char* operation = "";  ///< a literal
  BucketIndex bucket{};
  bool of_bucket = false;

  /// "reduce_scatter of bucket 3", "all_reduce of the step's sums", "a sum over the ranks".
  [[nodiscard]] std::string text() const;
};

class Watchdog {
 public:
  /// Collective over `parent`. `hosts`: the host of each rank.
  Watchdog(MPI_Comm parent, std::vector<std::string> hosts);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  /// The ranks that have ended, as far as this rank knows: "rank 2 on north".
  [[nodiscard]] std::string lost_text() const;

  /// Progress of this rank in one lane.
  struct Lane {
    std::int64_t id = 0;
    std::int64_t sequence = 0;  ///< collectives entered
    bool inside = false;        ///< whether the rank is inside the latest one
    Collective collective;
  };
  /// All ranks add lanes in the same order, without communication; those of a `part` above 0 only
  /// the ranks of that part, for which the others do not count as late. The result is valid until
  /// remove().
  Lane& add(int part = 0);
  void remove(Lane& lane);
  void enter(Lane& lane, const Collective& collective);
  void leave(Lane& lane);
  /// Number of collectives entered so far, in all lanes that were not removed.
  [[nodiscard]] std::int64_t num_entered() const;

  /// Nested; see World::AtWork.
  void begin_work() { works_.fetch_add(1, std::memory_order_relaxed); }
  void end_work() { works_.fetch_sub(1, std::memory_order_relaxed); }

  enum class Finding : std::uint8_t { keep_waiting, no_progress };
  /// Call when `lane` has made no progress for `idle_s`. Throws CommError, or returns whether to
  /// continue waiting. The caller keeps `all_were_there` between calls, and sets it to false after
  /// progress.
  Finding check_ranks(const Lane& lane, double idle_s, bool& all_were_there);
  [[noreturn]] void fail(const Lane& lane, double idle_s, const std::string& why);

  /// Throws when another lane of this rank has failed.
  void check() const {
    if (failed_.load(std::memory_order_acquire))
      fail_again();
  }

  [[nodiscard]] double deadline_s() const { return deadline_s_.load(std::memory_order_relaxed); }
  void set_deadline(double deadline_s) { deadline_s_.store(deadline_s, std::memory_order_relaxed); }

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

  void serve(const std::stop_token& stop);
  /// Throws LostRank: MPI reports lost ranks only to those that communicate with them.
  void expect_all_alive();
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

  mutable std::mutex mutex_;               // guards the lanes and the reason
  std::list<Lane> lanes_;                  // the first one is the World's
  std::map<int, std::int64_t> num_added_;  // lanes, by part
  std::string failed_in_, why_;
  bool lost_ = false;  // it failed since a rank was lost

  std::mutex calling_;  // guards the members of the asking side, which follow
  std::int64_t num_calls_ = 0;
  std::vector<Question> questions_;  // by rank
  std::vector<MPI_Request> asking_;  // by rank

  // Members of the responder.
  std::vector<Answer> answers_;         // by rank
  std::vector<MPI_Request> answering_;  // by rank
  std::jthread responder_;              // last: starts when all other members are ready
};

}  // namespace trireme::comm
