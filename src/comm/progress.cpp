// SPDX-License-Identifier: Apache-2.0
#include "comm/progress.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "comm/mpi_check.hpp"

namespace trireme::comm {
namespace {

constexpr int spin_turns = 50;
/// Source: naps of 200 us hide communication behind compute better than 50 us or spinning
/// (2 ranks x 2 threads on 2 cores, 2 Gbit/s link: 92 ms against 105 and 103 of 80 ms compute).
constexpr int shortest_nap_us = 20;
constexpr int longest_nap_us = 200;

constexpr int question_tag = 1;
constexpr int answer_tag = 2;
/// How long the roll waits for answers, at most; waiting ranks look for questions once per nap.
constexpr double longest_roll_call_s = 2.0;

bool message_waits(MPI_Comm comm, int tag, int& source) {
  int found = 0;
  MPI_Status status;
  TRIREME_MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &found, &status));
  source = found != 0 ? status.MPI_SOURCE : -1;
  return found != 0;
}

}  // namespace

Patience::Patience(double deadline_s) : deadline_s_(deadline_s) {}

int Patience::turn(int longest_us) {
  ++turns_;
  if (turns_ < spin_turns)
    return 0;
  if (!idle_) {
    idle_ = true;
    since_ = Clock::now();
  }
  const int doublings = std::min((turns_ - spin_turns) / 4, 10);
  return std::min(shortest_nap_us << doublings, longest_us);
}

double Patience::idle_s() const {
  return idle_ ? std::chrono::duration<double>(Clock::now() - since_).count() : 0;
}

Progress::Progress(MPI_Comm parent, std::vector<std::string> hosts, double deadline_s)
    : comm_(OwnedComm::duplicate(parent)),
      hosts_(std::move(hosts)),
      patience_(deadline_s),
      rank_(comm_.rank()),
      size_(comm_.size()) {}

Progress::Entered Progress::enter(const char* operation, BucketIndex bucket) {
  TRIREME_EXPECT(!busy_.exchange(true, std::memory_order_acquire),
                 "{} started while {} is still under way", collective_text(operation, bucket),
                 collective_text(operation_, bucket_));
  ++sequence_;
  operation_ = operation;
  bucket_ = bucket;
  patience_.renew();
  return Entered(*this);
}

void Progress::pause() {
  const int nap_us = turn(longest_nap_us);
  if (nap_us == 0)
    return;
  std::this_thread::sleep_for(std::chrono::microseconds(nap_us));
  after_nap();
}

void Progress::after_nap() {
  answer_questions();
  if (patience_.expired())
    call_the_roll();
}

void Progress::answer_questions() {
  for (int asker = -1; message_waits(comm_.get(), question_tag, asker);) {
    TRIREME_MPI(
        MPI_Recv(nullptr, 0, MPI_INT64_T, asker, question_tag, comm_.get(), MPI_STATUS_IGNORE));
    TRIREME_MPI(MPI_Send(&sequence_, 1, MPI_INT64_T, asker, answer_tag, comm_.get()));
  }
}

void Progress::call_the_roll() {
  const double idle_s = patience_.idle_s();
  std::vector<bool> here(static_cast<std::size_t>(size_), false);
  here[static_cast<std::size_t>(rank_)] = true;
  for (int r = 0; r < size_; ++r)
    if (r != rank_)
      TRIREME_MPI(MPI_Send(nullptr, 0, MPI_INT64_T, r, question_tag, comm_.get()));
  Patience patience(std::min(longest_roll_call_s, patience_.deadline_s()));
  while (!patience.expired() && std::ranges::count(here, false) > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(patience.turn(longest_nap_us)));
    answer_questions();
    for (int source = -1; message_waits(comm_.get(), answer_tag, source);) {
      std::int64_t reached = 0;
      TRIREME_MPI(
          MPI_Recv(&reached, 1, MPI_INT64_T, source, answer_tag, comm_.get(), MPI_STATUS_IGNORE));
      if (reached >= sequence_)
        here[static_cast<std::size_t>(source)] = true;
    }
  }
  std::vector<int> missing;
  for (int r = 0; r < size_; ++r)
    if (!here[static_cast<std::size_t>(r)])
      missing.push_back(r);
  fail_waiting(collective_text(operation_, bucket_), idle_s, missing, hosts_);
}

std::string collective_text(const char* operation, BucketIndex bucket) {
  return fmt::format("{} of bucket {}", operation, at(bucket));
}

void fail_waiting(const std::string& collective,
                  double idle_s,
                  const std::vector<int>& missing,
                  const std::vector<std::string>& hosts) {
  std::string who;
  for (const int r : missing)
    who += fmt::format("{}rank {} on {}", who.empty() ? "" : ", ", r,
                       hosts.at(static_cast<std::size_t>(r)));
  throw CommError("communication", collective,
                  fmt::format("nothing moved for {:.1f} s; {}", idle_s,
                              who.empty() ? "every rank is there, but the data stands still"
                                          : who + " never arrived"),
                  __FILE__, __LINE__);
}

}  // namespace trireme::comm
