// SPDX-License-Identifier: Apache-2.0
// A directory for the temporary files of a command, such as a token cache. Rank 0 creates it, all
// ranks know its path, and the destructor or World::abort() removes it. It is in the system's
// temporary directory, or in `parent` if the files must be on a certain file system.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

#include "comm/control/together.hpp"
#include "comm/control/world.hpp"

namespace trireme::comm {

class TemporaryDirectory {
 public:
  /// Collective.
  explicit TemporaryDirectory(World& world, const std::string& parent = {}) {
    std::string path;
    on_first_rank(world, [&] {
      const std::filesystem::path place = parent.empty() ? system_place() : parent;
      path = (place / "trireme-XXXXXX").string();
      const std::lock_guard lock(mutex);
      if (mkdtemp(path.data()) == nullptr)
        throw StorageError("file system", "mkdtemp " + path, std::strerror(errno));
      made_here.insert(path);
    });
    path_ = world.broadcast(std::move(path), 0);
  }
  ~TemporaryDirectory() {
    const std::lock_guard lock(mutex);
    if (made_here.erase(path_) > 0)
      remove(path_);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Removes the directories of this process, which is about to end without destructors. Threads
  /// that want to create one wait for that end. May be called again, for files created since.
  static void remove_all() noexcept {
    mutex.lock();
    std::ranges::for_each(made_here, remove);
  }

 private:
  /// The directory that TMPDIR or another variable names, or /tmp.
  static std::string system_place() {
    std::error_code problem;
    const std::filesystem::path found = std::filesystem::temp_directory_path(problem);
    if (!problem)
      return found.string();
    std::string choice = "/tmp";
    for (const char* name : {"TEMPDIR", "TEMP", "TMP", "TMPDIR"})  // the last one has precedence
      if (const char* value = std::getenv(name))                   // NOLINT(concurrency-mt-unsafe)
        choice = fmt::format("{}={}", name, value);
    throw StorageError("file system", fmt::format("use {} for temporary files", choice),
                       problem.message() + ". Set TMPDIR to a directory that this user may write");
  }

  /// Other threads may still create and rename files there for a while.
  static void remove(const std::string& path) noexcept {
    const auto enough = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    std::error_code problem;
    do std::filesystem::remove_all(path, problem);
    while (problem && std::chrono::steady_clock::now() < enough);
  }

  static inline std::recursive_mutex mutex;
  static inline std::set<std::string> made_here;
  std::string path_;
};

}  // namespace trireme::comm
