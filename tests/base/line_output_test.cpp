// SPDX-License-Identifier: Apache-2.0
#include "base/line_output.hpp"

#include <array>
#include <cstdlib>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <termios.h>
#include <unistd.h>

namespace trireme {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_writer();
  }
  void close_writer() {
    if (ends[1] >= 0)
      ::close(ends[1]);
    ends[1] = -1;
  }
  int ends[2]{};
};

std::string read_some(int descriptor) {
  std::array<char, 65536> room{};
  const ssize_t got = ::read(descriptor, room.data(), room.size());
  return {room.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

TEST(LineOutput, WritesAtOnceWhatTheReaderTakes) {
  Pipe pipe;
  LineOutput output(pipe.ends[1]);
  output.write("one\n");
  output.write("two\n");
  EXPECT_EQ(read_some(pipe.ends[0]), "one\ntwo\n");
}

TEST(LineOutput, NeverWaitsForAReaderAndCountsWhatItDrops) {
  Pipe pipe;
  ASSERT_GT(::fcntl(pipe.ends[1], F_SETPIPE_SZ, 4096), 0);
  const std::string line(999, 'x');
  std::string all;
  std::thread reader;
  {
    LineOutput output(pipe.ends[1]);
    constexpr int lines = 1000;  // more than the pipe and the queue hold
    for (int i = 0; i < lines; ++i) output.write(line + "\n");
    reader = std::thread([&] {
      for (std::string part; !(part = read_some(pipe.ends[0])).empty();) all += part;
    });
  }
  pipe.close_writer();
  reader.join();
  EXPECT_EQ(all.substr(0, 1000), line + "\n");
  EXPECT_NE(all.find("lines are missing here; log.txt"), std::string::npos);
  EXPECT_LT(all.size(), LineOutput::most_waiting_bytes + 8192);
}

TEST(LineOutput, IgnoresAReaderThatIsGone) {
  Pipe pipe;
  LineOutput output(pipe.ends[1]);
  ::close(pipe.ends[0]);
  pipe.ends[0] = ::open("/dev/null", O_RDONLY);
  sigset_t broken, before;
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken, &before);
  output.write("lost\n");
  constexpr timespec at_once{};
  sigtimedwait(&broken, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(LineOutput, DoesNotWaitForATerminalThatStandsStill) {
  const int control = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(control, 0);
  ASSERT_EQ(::grantpt(control), 0);
  ASSERT_EQ(::unlockpt(control), 0);
  std::array<char, 128> name{};
  ASSERT_EQ(::ptsname_r(control, name.data(), name.size()), 0);
  const int terminal = ::open(name.data(), O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  {
    LineOutput output(terminal);
    ASSERT_EQ(::tcflow(terminal, TCOOFF), 0);  // Ctrl-S
    for (int i = 0; i < 1000; ++i) output.write(std::string(999, 'x') + "\n");
    ASSERT_EQ(::tcflow(terminal, TCOON), 0);
    ::close(control);  // the reader is gone
  }
  ::close(terminal);
}

}  // namespace
}  // namespace trireme
