// SPDX-License-Identifier: Apache-2.0
// Log messages of a run: one Log object, made in main, handed down by reference. Rank 0 writes to
// the terminal and, once the run directory is known, to a log file; the other ranks write warnings
// and errors only. Thread-safe (spdlog's multi-threaded sinks).
//
// The terminal never makes a run wait (base/line_output.hpp), and it gets no control characters:
// names and paths that hold some are shown with \xNN in their place.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace spdlog {
class logger;
}

namespace trireme {

class Log {
 public:
  /// `verbose`: this process prints information; otherwise warnings and errors only. `who` prefixes
  /// them, as in "rank 3 node07".
  Log(bool verbose, std::string who);

  /// Also write everything to `path` (appending). Throws StorageError.
  void also_to_file(const std::string& path);
  /// Into that file alone; to the terminal where there is no file.
  void only_to_file(const std::string& line);

  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) {
    say(Level::info, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> text, Args&&... args) {
    say(Level::warning, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) {
    say(Level::error, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  enum class Level { info, warning, error };
  // Texts come here formatted: spdlog's own templates cost 5 s of compilation in every file.
  void say(Level level, std::string_view text);

  bool verbose_;
  std::string who_;
  std::shared_ptr<spdlog::logger> logger_;
  std::shared_ptr<spdlog::logger> file_;
};

}  // namespace trireme
