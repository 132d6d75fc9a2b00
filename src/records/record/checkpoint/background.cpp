// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/background.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/threads.hpp"

namespace trireme::record {

void Background::start(Work work) {
  TRIREME_EXPECT(!thread_.joinable(), "work is under way already");
  done_.store(false, std::memory_order_relaxed);
  const auto run = [this, work = std::move(work)](const std::stop_token& stop) {
    try {
      work(stop);
    } catch (...) {
      problem_ = std::current_exception();
    }
    done_.store(true, std::memory_order_release);
  };
  try {
    thread_ = start_thread<std::jthread>("checkpoint", run);
  } catch (...) {
    done_.store(true, std::memory_order_relaxed);
    throw;
  }
}

void Background::wait() {
  if (thread_.joinable())
    thread_.join();
  thread_ = {};
  if (problem_)
    std::rethrow_exception(std::exchange(problem_, nullptr));
}

}  // namespace trireme::record
