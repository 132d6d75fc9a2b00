// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/background.hpp"

#include <utility>

#include "base/error.hpp"

namespace trireme::record {

void Background::start(Work work) {
  TRIREME_EXPECT(!thread_.joinable(), "work is under way already");
  done_.store(false, std::memory_order_relaxed);
  thread_ = std::jthread([this, work = std::move(work)](const std::stop_token& stop) {
    try {
      work(stop);
    } catch (...) {
      problem_ = std::current_exception();
    }
    done_.store(true, std::memory_order_release);
  });
}

void Background::wait() {
  if (thread_.joinable())
    thread_.join();
  thread_ = {};
  if (problem_)
    std::rethrow_exception(std::exchange(problem_, nullptr));
}

}  // namespace trireme::record
