// SPDX-License-Identifier: Apache-2.0
// Starts threads. If the kernel refuses one, the error names the limit.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

#include "base/error.hpp"

namespace trireme {

/// The limits that can prevent a new thread, with their values: "ulimit -u is 64, …".
std::string thread_limits();

/// Throws DeviceError: the thread `name` could not be started.
[[noreturn]] void refuse_thread(const std::string& name, const std::string& reason);

/// Starts a thread that tools show as `name` (at most 15 characters). Throws DeviceError.
template <class Thread = std::thread, class Run>
Thread start_thread(const std::string& name, Run&& run) {
  try {
    Thread thread(std::forward<Run>(run));
    pthread_setname_np(thread.native_handle(), name.c_str());
    return thread;
  } catch (const std::system_error& problem) {
    refuse_thread(name, problem.what());
  }
}

/// Starts std::async on a new thread for the task `name`. Throws DeviceError.
template <class Run>
auto start_async(const std::string& name, Run&& run) {
  try {
    return std::async(std::launch::async, std::forward<Run>(run));
  } catch (const std::system_error& problem) {
    refuse_thread(name, problem.what());
  }
}

/// Sleeps for `time`, or until `stop` is requested. Returns false if it was requested.
bool sleep_unless_stopped(const std::stop_token& stop, std::chrono::duration<double> time);

/// Holds `count` idle threads, to test whether this process may start that many. Throws
/// DeviceError; OpenMP would end the process without naming the rank, the host or the limit.
class HeldThreads {
 public:
  explicit HeldThreads(int count);
  ~HeldThreads() { end(); }
  HeldThreads(const HeldThreads&) = delete;
  HeldThreads& operator=(const HeldThreads&) = delete;

 private:
  void end();

  std::atomic<bool> done_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trireme
