// SPDX-License-Identifier: Apache-2.0
#include "base/threads.hpp"

#include <condition_variable>
#include <mutex>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/control_groups.hpp"

namespace trireme {

std::string thread_limits() {
  std::string text;
  const auto add = [&text](const std::string& limit) {
    text += (text.empty() ? "" : "; ") + limit;
  };
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    add(fmt::format("ulimit -u allows {} threads to all processes of this user", limit.rlim_cur));
  if (const GroupLimits groups = limits_of_groups(); groups.threads != unlimited)
    add(fmt::format("pids.max allows {} threads to the control group", groups.threads));
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    add(fmt::format("ulimit -v allows {} MiB, and each thread needs a stack",
                    limit.rlim_cur >> 20U));
  return text.empty() ? "no limit of the user or the control group is set" : text;
}

void refuse_thread(const std::string& name, const std::string& reason) {
  throw DeviceError("CPU", fmt::format("start the thread '{}'", name),
                    fmt::format("{} ({}). Raise the limit, or lower run.threads or the number of "
                                "ranks per host",
                                reason, thread_limits()),
                    __FILE__, __LINE__);
}

void expect_threads(int count) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::vector<std::jthread> threads;
  struct Release {  // also when a thread is refused: the destructors of the others wait for them
    std::mutex& mutex;
    std::condition_variable& changed;
    bool& done;
    ~Release() {
      const std::lock_guard lock(mutex);
      done = true;
      changed.notify_all();
    }
  } const release{mutex, changed, done};
  for (int i = 0; i < count; ++i)
    threads.push_back(start_thread<std::jthread>("compute", [&] {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return done; });
    }));
}

}  // namespace trireme
