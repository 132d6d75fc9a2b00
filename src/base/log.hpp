// SPDX-License-Identifier: Apache-2.0
// The run's voice: one Log object, made in main, handed down by reference. Rank 0 speaks on the
// terminal and, once the run directory is known, in a log file; the other ranks speak only when
// something is wrong. Thread-safe (spdlog's multi-threaded sinks).
#pragma once

#include <memory>
#include <string>

#include <spdlog/spdlog.h>

namespace trireme {

class Log {
 public:
  /// `speaks`: this process prints information; otherwise warnings and errors only. `who` prefixes
  /// them, as in "rank 3 node07".
  Log(bool speaks, std::string who);

  /// Also write everything to `path` (appending). Throws StorageError.
  void also_to_file(const std::string& path);
  /// Into that file alone, where there is one: the terminal gets it otherwise.
  void only_to_file(const std::string& line);

  template <class... Args>
  void info(spdlog::format_string_t<Args...> text, Args&&... args) {
    logger_->info(text, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warning(spdlog::format_string_t<Args...> text, Args&&... args) {
    logger_->warn(text, std::forward<Args>(args)...);
  }
  template <class... Args>
  void error(spdlog::format_string_t<Args...> text, Args&&... args) {
    logger_->error(text, std::forward<Args>(args)...);
  }

 private:
  bool speaks_;
  std::string who_;
  std::shared_ptr<spdlog::logger> logger_;
  std::shared_ptr<spdlog::logger> file_;
};

}  // namespace trireme
