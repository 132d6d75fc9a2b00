// SPDX-License-Identifier: Apache-2.0
#include "comm/control/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "base/threads.hpp"

#include "comm/communicator.hpp"
#include "comm/control/requests.hpp"
#include "comm/control/world.hpp"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int question_tag = 1;
constexpr int answer_tag = 2;
constexpr std::int64_t lanes_of_a_part = std::int64_t{1} << 32U;
/// Time between two polls of a responder for questions. Twenty a second have no measurable cost.
constexpr std::chrono::milliseconds between_looks{50};
/// Share of the deadline that the watchdog waits for answers; at least shortest_answer_time.
constexpr double share_of_deadline = 0.1;
constexpr std::chrono::duration<double> shortest_answer_time{5};
constexpr std::chrono::milliseconds between_answers{1};
/// If two polls for answers are further apart than this, the process was stopped in between.
constexpr std::chrono::duration<double> longest_look{0.1};
/// Maximum number of ranks that an error names.
constexpr std::size_t most_named = 8;

bool message_waits(MPI_Comm comm, int tag, int& source) {
  int found = 0;
  MPI_Status status;
  TRIREME_MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &found, &status));
  source = found != 0 ? status.MPI_SOURCE : -1;
  return found != 0;
}

}  // namespace

std::string Collective::text() const {
  if (!of_bucket)
    return operation;
  if (bucket == sums_of_the_step)
    return fmt::format("{} of the step's sums", operation);
  if (bucket == matrices_of_the_step)
    return fmt::format("{} of the step's matrices", operation);
  return fmt::format("{} of bucket {}", operation, at(bucket));
}

Watchdog::Watchdog(MPI_Comm parent, std::vector<std::string> hosts)
    : comm_(OwnedComm::duplicate(parent)),
      hosts_(std::move(hosts)),
      rank_(comm_.rank()),
      size_(comm_.size()) {
  const auto num_ranks = static_cast<std::size_t>(size_);
  questions_.resize(num_ranks);
  answers_.resize(num_ranks);
  asking_.assign(num_ranks, MPI_REQUEST_NULL);
  answering_.assign(num_ranks, MPI_REQUEST_NULL);
  if (size_ == 1)
    return;  // no other rank asks
  responder_ =
      start_thread<std::jthread>("watchdog", [this](const std::stop_token& stop) { serve(stop); });
}

Watchdog::~Watchdog() {
  responder_ = std::jthread();  // ends it
  const CancelOnExit questions(asking_), answers(answering_);
}

Watchdog::Lane& Watchdog::add(int part) {
  const std::lock_guard lock(mutex_);
  lanes_.push_back({.id = part * lanes_of_a_part + num_added_[part]++, .collective = {}});
  return lanes_.back();
}

void Watchdog::remove(Lane& lane) {
  const std::lock_guard lock(mutex_);
  lanes_.remove_if([&](const Lane& one) { return &one == &lane; });
}

void Watchdog::enter(Lane& lane, const Collective& collective) {
  const std::lock_guard lock(mutex_);
  ++lane.sequence;
  lane.inside = true;
  lane.collective = collective;
}

void Watchdog::leave(Lane& lane) {
  const std::lock_guard lock(mutex_);
  lane.inside = false;
}

std::int64_t Watchdog::num_entered() const {
  const std::lock_guard lock(mutex_);
  std::int64_t entered = 0;
  for (const Lane& lane : lanes_) entered += lane.sequence;
  return entered;
}

void Watchdog::serve(const std::stop_token& stop) {
  while (sleep_unless_stopped(stop, between_looks)) {
    try {
      expect_all_alive();
      answer_questions();
    } catch (const LostRank& loss) {
      {
        const std::lock_guard reason(mutex_);
        lost_ = true;
        why_ = loss.reason();
      }
      failed_.store(true, std::memory_order_release);
      return;
    } catch (const std::exception& problem) {  // a waiting thread gets the same failure
      error_line("warning: this rank no longer answers the health checks of others: {}",
                 problem.what());
      return;
    }
  }
}

std::string Watchdog::lost_text() const {
  std::string text;
  for (const int rank : lost_ranks(comm_.get()))
    text += fmt::format("{}rank {} on {}", text.empty() ? "" : ", ", rank,
                        hosts_.at(static_cast<std::size_t>(rank)));
  return text;
}

void Watchdog::expect_all_alive() {
  const std::string lost = lost_text();
  if (lost.empty())
    return;
  revoke_all();
  throw LostRank("MPI", "communicate", lost + " ended");
}

void Watchdog::answer_questions() {
  for (int asker = -1; message_waits(comm_.get(), question_tag, asker);) {
    Question question{};
    TRIREME_MPI(MPI_Recv(&question, sizeof question, MPI_BYTE, asker, question_tag, comm_.get(),
                         MPI_STATUS_IGNORE));
    const auto peer = static_cast<std::size_t>(asker);
    if (!completed(answering_[peer]))
      continue;  // it has not received the last answer, so it is not waiting for one
    answers_[peer] = answer_to(question);
    TRIREME_MPI(MPI_Isend(&answers_[peer], sizeof(Answer), MPI_BYTE, asker, answer_tag, comm_.get(),
                          &answering_[peer]));
  }
}

Watchdog::Answer Watchdog::answer_to(const Question& question) const {
  Answer answer;
  answer.call = question.call;
  const std::lock_guard lock(mutex_);
  // All collectives of a removed lane were completed; a lane that was not added yet has none, and
  // one of another part will never have any.
  const auto added = num_added_.find(static_cast<int>(question.lane / lanes_of_a_part));
  const bool expected =
      added != num_added_.end() && question.lane % lanes_of_a_part >= added->second;
  std::int64_t reached = expected ? 0 : std::numeric_limits<std::int64_t>::max();
  std::string places;
  for (const Lane& lane : lanes_) {
    if (lane.id == question.lane)
      reached = lane.sequence;
    if (lane.inside)
      places += (places.empty() ? "in " : " and ") + lane.collective.text();
  }
  if (places.empty() && !failed_in_.empty())
    places = "in " + failed_in_;  // this rank has already left it with an error
  // A rank that waits in a collective of the World is not at work.
  const bool works =
      works_.load(std::memory_order_relaxed) > 0 && (lanes_.empty() || !lanes_.front().inside);
  answer.state = works                          ? Answer::at_work
                 : reached >= question.sequence ? Answer::there
                                                : Answer::late;
  places.copy(answer.place.data(), answer.place.size() - 1);
  return answer;
}

std::vector<Watchdog::Answer> Watchdog::ask(const Question& question) {
  std::vector<Answer> answers(static_cast<std::size_t>(size_));
  answers[static_cast<std::size_t>(rank_)].state = Answer::there;
  for (int r = 0; r < size_; ++r) {
    const auto peer = static_cast<std::size_t>(r);
    if (r == rank_ || !completed(asking_[peer]))
      continue;  // a rank that has not received the last question will not receive this one
    questions_[peer] = question;
    TRIREME_MPI(MPI_Isend(&questions_[peer], sizeof question, MPI_BYTE, r, question_tag,
                          comm_.get(), &asking_[peer]));
  }
  using Seconds = std::chrono::duration<double>;
  const Seconds longest = std::max(shortest_answer_time, Seconds(share_of_deadline * deadline_s()));
  Seconds waited{0};
  auto last = Clock::now();
  std::int64_t missing = size_ - 1;
  while (missing > 0 && waited < longest) {
    std::this_thread::sleep_for(between_answers);
    const auto now = Clock::now();
    waited += std::min<Seconds>(now - last, longest_look);
    last = now;
    for (int source = -1; message_waits(comm_.get(), answer_tag, source);) {
      Answer answer;
      TRIREME_MPI(MPI_Recv(&answer, sizeof answer, MPI_BYTE, source, answer_tag, comm_.get(),
                           MPI_STATUS_IGNORE));
      if (answer.call != question.call)
        continue;  // the answer to an earlier call
      answers[static_cast<std::size_t>(source)] = answer;
      --missing;
    }
  }
  return answers;
}

Watchdog::Finding Watchdog::check_ranks(const Lane& lane, double idle_s, bool& all_were_there) {
  const std::lock_guard calling(calling_);
  check();
  // The lane is the caller's own, or a copy, so no other thread writes it now.
  const auto answers = ask({++num_calls_, lane.id, lane.sequence});
  const auto any = [&](Answer::State state) {
    return std::ranges::any_of(answers, [&](const Answer& a) { return a.state == state; });
  };
  if (!any(Answer::silent)) {
    const bool works = any(Answer::at_work);
    if (works || !any(Answer::late)) {
      const bool again = std::exchange(all_were_there, !works);
      return again && !works ? Finding::no_progress : Finding::keep_waiting;
    }
  }
  std::string who = describe(answers, Answer::silent);
  const std::string late = describe(answers, Answer::late);
  who += (who.empty() || late.empty() ? "" : "; ") + late;
  fail(lane, idle_s, who);
}

std::string Watchdog::describe(const std::vector<Answer>& answers, Answer::State state) const {
  std::string text;
  std::size_t count = 0;
  for (std::size_t r = 0; r < answers.size(); ++r) {
    if (answers[r].state != state || ++count > most_named)
      continue;
    const char* place = answers[r].place.data();
    text += fmt::format("{}rank {} on {} {}", text.empty() ? "" : ", ", r, hosts_.at(r),
                        state == Answer::silent ? std::string("does not answer")
                        : *place == '\0' ? std::string("has not entered it and is in no collective")
                                         : fmt::format("is still {}", place));
  }
  if (count > most_named)
    text += fmt::format(", and so are {} more", count - most_named);
  return text;
}

void Watchdog::fail(const Lane& lane, double idle_s, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (why_.empty()) {
      failed_in_ = lane.collective.text();
      why_ = fmt::format("no progress for {:.1f} s; {}", idle_s, why);
    }
  }
  failed_.store(true, std::memory_order_release);
  fail_again();
}

void Watchdog::fail_again() const {
  const std::lock_guard lock(mutex_);
  if (lost_)
    throw LostRank("communication", "any collective", why_);
  throw CommError("communication", failed_in_, why_);
}

}  // namespace trireme::comm
