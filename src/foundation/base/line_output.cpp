// SPDX-License-Identifier: Apache-2.0
#include "base/line_output.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

namespace trireme {
namespace {

bool takes_text(int descriptor, int milliseconds) {
  pollfd asked{descriptor, POLLOUT, 0};
  return ::poll(&asked, 1, milliseconds) > 0;
}

}  // namespace

LineOutput::LineOutput(int descriptor) : descriptor_(descriptor) {
  if (::isatty(descriptor) == 0)
    return;
  const std::string path = fmt::format("/proc/self/fd/{}", descriptor);
  const int again = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  own_ = again >= 0;
  if (own_)
    descriptor_ = again;
}

LineOutput::~LineOutput() {
  constexpr int longest_wait_ms = 1000;
  while (!waiting_.empty() && takes_text(descriptor_, longest_wait_ms)) advance();
  if (own_)
    ::close(descriptor_);
}

void LineOutput::write(std::string_view text) {
  const std::lock_guard lock(mutex_);
  advance();
  if (waiting_.size() + text.size() > most_waiting_bytes) {
    dropped_lines_ += std::max<std::int64_t>(1, std::ranges::count(text, '\n'));
    return;
  }
  waiting_ += text;
  advance();
}

namespace {
int log_descriptor = STDOUT_FILENO;
}

LineOutput& log_output() {
  static LineOutput output(log_descriptor);
  return output;
}

void log_to_standard_error() {
  log_descriptor = STDERR_FILENO;
}

void LineOutput::advance() {
  while (!waiting_.empty() && takes_text(descriptor_, 0)) {
    const std::size_t most = std::min(waiting_.size(), std::size_t{PIPE_BUF});
    const ssize_t written = ::write(descriptor_, waiting_.data(), most);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0 && errno == EAGAIN)
      return;
    if (written < 0) {
      waiting_.clear();
      return;
    }
    waiting_.erase(0, static_cast<std::size_t>(written));
    if (waiting_.empty() && dropped_lines_ > 0) {
      waiting_ = fmt::format(
          "warning: the reader of standard output paused, so {} line{} are missing here; log.txt "
          "in the run directory has them\n",
          dropped_lines_, dropped_lines_ == 1 ? "" : "s");
      dropped_lines_ = 0;
    }
  }
}

}  // namespace trireme
