// SPDX-License-Identifier: Apache-2.0
#include "files/input_file.hpp"

#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "base/error.hpp"

namespace trireme::files {

InputFile::InputFile(std::string path)
    : file_(Descriptor::regular(std::move(path), O_RDONLY)), size_(file_.size()) {}

void InputFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  if (const std::size_t got = read_some(offset, bytes); got < bytes.size())
    throw StorageError("file system", "read " + path(),
                       fmt::format("it was cut while it was in use: it ends at byte {} and had {}",
                                   offset + static_cast<std::int64_t>(got), size_),
                       __FILE__, __LINE__);
}

std::string read_whole(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  text.resize(file.read_some(0, std::as_writable_bytes(std::span(text))));
  // A file of size 0 may be in /proc, and a file that grows is read up to its present end.
  for (char block[4096];;) {
    const std::size_t more = file.read_some(static_cast<std::int64_t>(text.size()),
                                            std::as_writable_bytes(std::span(block)));
    text.append(block, more);
    if (more < sizeof block)
      return text;
  }
}

}  // namespace trireme::files
