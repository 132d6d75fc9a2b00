// SPDX-License-Identifier: Apache-2.0
// Child processes for tests of what remains after a crash: one that is killed, and one whose disk
// is full.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme::test {

/// A copy of this process that runs `first`, reports that, and runs `rest` until it is killed. The
/// constructor returns when `first` is done.
class DoomedChild {
 public:
  template <class First, class Rest>
  DoomedChild(First&& first, Rest&& rest) {
    int ready[2];
    if (::pipe(ready) != 0)
      std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      first();
      const char done = 'x';
      if (::write(ready[1], &done, 1) != 1)
        ::_exit(1);
      rest();
      for (;;) ::pause();
    }
    char done = 0;
    EXPECT_EQ(::read(ready[0], &done, 1), 1) << "the child did not get so far";
    ::close(ready[0]);
    ::close(ready[1]);
  }
  template <class First>
  explicit DoomedChild(First&& first) : DoomedChild(first, [] {}) {}
  ~DoomedChild() { kill(); }
  DoomedChild(const DoomedChild&) = delete;
  DoomedChild& operator=(const DoomedChild&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0)
      return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

/// For EXPECT_EXIT: runs `action` where no file may grow beyond `bytes`. On a StorageError it
/// prints the message and exits with 3, otherwise with 0.
template <class Action>
[[noreturn]] void exit_with_a_full_disk(rlim_t bytes, Action&& action) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  try {
    action();
  } catch (const StorageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(3);
  }
  std::exit(0);
}

}  // namespace trireme::test
