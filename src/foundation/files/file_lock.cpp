// SPDX-License-Identifier: Apache-2.0
#include "files/file_lock.hpp"

#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme::files {

FileLock::FileLock(const std::string& path, const std::string& purpose) try
    : file_(path, O_RDWR | O_CREAT) {
} catch (const StorageError& problem) {
  if (purpose.empty())
    throw;
  throw StorageError("file system", purpose + "open " + path, problem.reason());
}

void FileLock::sign(const std::string& host) const {
  constexpr std::string_view ours = "process ";  // a full disk may have left a prefix
  if (const std::string line = holder(""); !line.starts_with(ours) && !ours.starts_with(line))
    throw UserError(Place{file_.path()},
                    "trireme keeps its lock under this name, and the file is another program's. "
                    "Move it to another place, or choose another directory");
  file_.rewind(0);
  file_.write(fmt::format("process {} on {}\n", ::getpid(), host));
  file_.sync();  // NFS shows it to other hosts
}

std::string FileLock::holder(const std::string& unknown) const {
  std::string line(256, '\0');
  line.resize(file_.read_some(0, std::as_writable_bytes(std::span(line))));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return line.empty() ? unknown : line;
}

}  // namespace trireme::files
