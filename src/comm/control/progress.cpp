// SPDX-License-Identifier: Apache-2.0
#include "comm/control/progress.hpp"

#include <algorithm>
#include <thread>

#include "base/error.hpp"

namespace trireme::comm {
namespace {

constexpr int spin_turns = 50;
/// Source: sleeps of 200 us overlap communication with compute better than 50 us or spinning (2
/// ranks x 2 threads on 2 cores, 2 Gbit/s link: 92 ms against 105 and 103, for 80 ms of compute).
constexpr int shortest_nap_us = 20;
constexpr int longest_nap_us = 200;
/// If two turns are further apart than this, the process was stopped in between.
constexpr std::chrono::seconds longest_gap{1};

}  // namespace

int Patience::turn(int longest_us) {
  ++turns_;
  if (turns_ < spin_turns)
    return 0;
  const auto now = Clock::now();
  if (!idle_) {
    idle_ = true;
    since_ = now;
  } else if (now - last_ > longest_gap) {
    since_ += now - last_ - longest_gap;
  }
  last_ = now;
  const int doublings = std::min((turns_ - spin_turns) / 4, 10);
  return std::min(shortest_nap_us << doublings, longest_us);
}

Progress::Entered Progress::enter(const Collective& collective) {
  watchdog_.check();
  TRIREME_EXPECT(!busy_.exchange(true, std::memory_order_acquire),
                 "{} started while {} is still under way", collective.text(),
                 lane_.collective.text());
  watchdog_.enter(lane_, collective);
  moved();
  return Entered(*this);
}

void Progress::leave() {
  watchdog_.leave(lane_);
  busy_.store(false, std::memory_order_release);
}

void Progress::pause() {
  const int nap_us = turn(longest_nap_us);
  if (nap_us == 0)
    return;
  std::this_thread::sleep_for(std::chrono::microseconds(nap_us));
  after_nap();
}

void Progress::after_nap() {
  watchdog_.check();
  if (patience_.idle_s() <= watchdog_.deadline_s())
    return;
  waited_s_ += patience_.idle_s();
  if (watchdog_.check_ranks(lane_, waited_s_, all_were_there_) == Watchdog::Finding::no_progress)
    watchdog_.fail(lane_, waited_s_, "every rank is there, but no data arrives");
  patience_.renew();
}

}  // namespace trireme::comm
