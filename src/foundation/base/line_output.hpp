// SPDX-License-Identifier: Apache-2.0
// The output of a run's log, which never makes the run wait for whoever reads it.
//
// A terminal stops reading after Ctrl-S or in the copy mode of tmux, and a pipe is full when its
// reader pauses. Text then waits in a queue of limited size. When the queue is full, whole lines
// are dropped, and their number is written as soon as the reader continues.
//
// 1. write() does not block: a pipe that polls as writable takes PIPE_BUF bytes at once, and a file
//    always does.
// 2. A terminal may accept less. It is reopened in non-blocking mode, because the mode belongs to
//    the open file description, which other processes (the shell, other ranks) share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace trireme {

class LineOutput {
 public:
  static constexpr std::size_t most_waiting_bytes = std::size_t{256} << 10U;

  /// The caller keeps `descriptor` open and closes it.
  explicit LineOutput(int descriptor);
  /// Writes the rest of the queue, and gives up if the reader takes nothing for one second.
  ~LineOutput();
  LineOutput(const LineOutput&) = delete;
  LineOutput& operator=(const LineOutput&) = delete;

  /// A failure (closed pipe, full disk) is ignored: log.txt has all lines.
  void write(std::string_view text);

 private:
  /// Writes as much of the queue as the reader takes now.
  void advance();

  int descriptor_;
  bool own_ = false;  ///< a reopened terminal, which is non-blocking
  std::mutex mutex_;  // guards what follows
  std::string waiting_;
  std::int64_t dropped_lines_ = 0;
};

/// The output of this process: standard output unless redirected.
LineOutput& log_output();
/// Redirects the log to standard error, because standard output is for a result. Call it before
/// anything is logged.
void log_to_standard_error();

}  // namespace trireme
