// SPDX-License-Identifier: Apache-2.0
#include "base/threads.hpp"

#include <condition_variable>
#include <mutex>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/control_groups.hpp"
#include "base/kernel_text.hpp"

namespace trireme {

std::string thread_limits() {
  std::string text;
  const auto add = [&text](const std::string& limit) {
    text += (text.empty() ? "" : "; ") + limit;
  };
  if (const auto limit = ulimit_of(RLIMIT_NPROC))
    add(fmt::format("ulimit -u allows {} threads to all processes of this user", *limit));
  if (const GroupLimits groups = limits_of_groups(); groups.threads != unlimited)
    add(fmt::format("pids.max allows {} threads to the control group", groups.threads));
  if (const auto limit = ulimit_of(RLIMIT_AS))
    add(fmt::format("ulimit -v allows {} MiB, and each thread needs a stack", *limit >> 20));
  return text.empty() ? "no limit of the user or the control group is set" : text;
}

void refuse_thread(const std::string& name, const std::string& reason) {
  throw DeviceError("CPU", fmt::format("start the thread '{}'", name),
                    fmt::format("{} ({}). Raise the limit, or lower run.threads or the number of "
                                "ranks per host",
                                reason, thread_limits()));
}

bool sleep_unless_stopped(const std::stop_token& stop, std::chrono::duration<double> time) {
  std::mutex mutex;
  // A stop request wakes it up. Kept because its constructor allocates, which a step must not.
  thread_local std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

HeldThreads::HeldThreads(int count) {
  try {
    for (int i = 0; i < count; ++i)
      threads_.push_back(start_thread("compute", [&] { done_.wait(false); }));
  } catch (const DeviceError&) {
    end();
    throw;
  }
}

void HeldThreads::end() {
  done_ = true;
  done_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace trireme
