// SPDX-License-Identifier: Apache-2.0
// Log lines about the progress of a long stage: at most a line every five seconds, with the time
// left in the stage if it continues at the same speed.
//
// 1. A stage begins with the first report() that names it and ends with the first one for another
//    stage. Work done before its first report does not count for the speed.
// 2. Nothing is printed for a finished stage.
// 3. Not thread-safe.
#pragma once

#include <chrono>
#include <string>

#include "base/log.hpp"
#include "base/text.hpp"

namespace trireme {

class StageProgress {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds every{5};

  /// The log must outlive it.
  explicit StageProgress(Log& log) : log_(log) {}

  /// `done` of `total`, in any unit. `what` names the stage.
  void report(const std::string& what,
              double done,
              double total,
              Clock::time_point now = Clock::now()) {
    if (what != what_) {
      what_ = what;
      begun_ = told_ = now;
      done_before_ = done;
    }
    if (now - told_ < every || done <= done_before_ || done >= total)
      return;
    told_ = now;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    log_.info("{}: {:.1f} %, {} left", what, 100 * done / total,
              duration_text(seconds * (total - done) / (done - done_before_)));
  }

 private:
  Log& log_;
  std::string what_;
  Clock::time_point begun_, told_;
  double done_before_ = 0;
};

}  // namespace trireme
