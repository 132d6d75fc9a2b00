// SPDX-License-Identifier: Apache-2.0
// Runs one piece of work at a time on its own thread.
//
// 1. start(), wait() and the destructor belong to one thread; done() never blocks.
// 2. wait() rethrows what the work threw.
// 3. The destructor asks the work to end (its stop_token) and waits for it; it ignores a failure.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <stop_token>
#include <thread>

namespace trireme::record {

class Background {
 public:
  using Work = std::function<void(const std::stop_token&)>;

  /// Requires: nothing is under way.
  void start(Work work);
  /// True also when nothing was started.
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Blocks until the work is done.
  void wait();

 private:
  std::atomic<bool> done_ = true;
  std::exception_ptr problem_;
  std::jthread thread_;  // last: it ends before the others go
};

}  // namespace trireme::record
