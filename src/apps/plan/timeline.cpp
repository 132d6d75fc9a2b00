// SPDX-License-Identifier: Apache-2.0
#include "plan/timeline.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme::plan {

void Timeline::advance(double work) {
  left_[running_] -= work;
  if (left_[running_] <= 0)
    ++running_;
}

void Timeline::compute(double seconds) {
  while (seconds > 0 && running_ < left_.size()) {
    const double pace = 1 - sharing_.compute_lost;
    const double until_it_ends = left_[running_] * sharing_.stretch;
    if (seconds > pace * until_it_ends) {
      seconds -= pace * until_it_ends;
      now_ += until_it_ends;
      shared_ += until_it_ends;
      advance(left_[running_]);
    } else {
      now_ += seconds / pace;
      shared_ += seconds / pace;
      advance(seconds / pace / sharing_.stretch);
      seconds = 0;
    }
  }
  now_ += std::max(seconds, 0.0);
}

std::size_t Timeline::enqueue(double seconds) {
  left_.push_back(seconds);
  return left_.size() - 1;
}

void Timeline::pass_waiting(double seconds) {
  now_ += seconds;
  exposed_ += seconds;
}

void Timeline::wait(std::size_t collective) {
  TRIREME_EXPECT(collective < left_.size(), "waiting for collective {} of {}", collective,
                 left_.size());
  while (running_ <= collective) {
    pass_waiting(left_[running_]);
    advance(left_[running_]);
  }
}

void Timeline::block(double seconds) {
  pass_waiting(seconds);
  while (seconds > 0 && running_ < left_.size()) {
    const double part = std::min(seconds, left_[running_]);
    seconds -= part;
    advance(part);
  }
}

}  // namespace trireme::plan
