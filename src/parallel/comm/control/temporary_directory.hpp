// SPDX-License-Identifier: Apache-2.0
// A directory for the temporary files of a command, such as a token cache. Rank 0 creates it, all
// ranks know its path, and the destructor removes it. It is in the system's temporary directory, or
// in `parent` if the files must be on a certain file system.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

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
      const std::filesystem::path place =
          parent.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(parent);
      path = (place / "trireme-XXXXXX").string();
      if (mkdtemp(path.data()) == nullptr)
        throw StorageError("file system", "mkdtemp " + path, std::strerror(errno), __FILE__,
                           __LINE__);
      made_here_ = true;
    });
    path_ = world.broadcast(std::move(path), 0);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (made_here_)
      std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_here_ = false;
};

}  // namespace trireme::comm
