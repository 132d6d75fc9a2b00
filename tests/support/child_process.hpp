// SPDX-License-Identifier: Apache-2.0
// Child processes for tests of failures: one that is killed, one whose disk is full, and one that
// may not start threads.
#pragma once

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

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

/// The output of `action` in a process whose user may not start another thread.
template <class Action>
std::string without_threads(const Action& action) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{1, 1};
    std::string text = "threads could not be limited";
    constexpr int nobody = 65534;
    if (::setrlimit(RLIMIT_NPROC, &none) == 0 && (::geteuid() != 0 || ::setuid(nobody) == 0))
      try {
        action();
        text = "nothing was refused";
      } catch (const std::exception& problem) {
        text = problem.what();
      }
    [[maybe_unused]] const auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::array<char, 4096> room{};
  const auto got = ::read(ends[0], room.data(), room.size());
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return {room.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

}  // namespace trireme::test
