// SPDX-License-Identifier: Apache-2.0
// Log messages of a run. main creates one Log and passes it by reference. Rank 0 writes to the
// terminal and, once the run directory is known, to a log file; the other ranks write warnings and
// errors only. Thread-safe.
//
// The terminal never makes a run wait (base/line_output.hpp). Control characters appear as \xNN.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace trireme {

class Log {
 public:
  /// `verbose`: this process prints information; otherwise warnings and errors only. `who` prefixes
  /// them, as in "rank 3 node07".
  Log(bool verbose, std::string who) : verbose_(verbose), who_(std::move(who)) {}

  /// Also appends everything to `path`. The result of `begin_work` is held during each write, which
  /// a file system may delay for any time. Throws StorageError.
  void also_to_file(const std::string& path,
                    std::function<std::shared_ptr<void>()> begin_work = {});
  /// Writes a line only to that file, if there is one.
  void only_to_file(std::string_view line);

  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) {
    say("info", fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> text, Args&&... args) {
    say("warning", fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) {
    say("error", fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  void say(std::string_view level, std::string_view text);
  void write_to_file(std::string_view level, const std::string& text);

  bool verbose_;
  std::string who_;
  std::mutex mutex_;                 // guards the members below
  std::shared_ptr<std::FILE> file_;  ///< null: no log file
  std::function<std::shared_ptr<void>()> begin_work_;
  bool fails_ = false;  ///< a write has failed and was reported
};

}  // namespace trireme
