// SPDX-License-Identifier: Apache-2.0
#include "tokens/draft.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme::tokens {

void fail_storage(const std::string& statement, int error) {
  throw StorageError("file system", statement, std::strerror(error), __FILE__, __LINE__);
}

Descriptor::Descriptor(const std::string& path, int flags)
    : path_(path), value_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (value_ < 0)
    fail_storage("open " + path, errno);
}

Descriptor::~Descriptor() {
  ::close(value_);
}

void Descriptor::write(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::write(value_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      fail_storage("write " + path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void Descriptor::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(value_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      fail_storage("read " + path_, count < 0 ? errno : ENODATA);
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void Descriptor::rewind(std::uint64_t offset) const {
  const auto place = static_cast<off_t>(offset);
  if (::ftruncate(value_, place) != 0 || ::lseek(value_, place, SEEK_SET) != place)
    fail_storage("truncate " + path_, errno);
}

void Descriptor::rewrite_front(std::span<const std::byte> bytes) const {
  if (::lseek(value_, 0, SEEK_SET) != 0)
    fail_storage("seek in " + path_, errno);
  write(bytes);
}

void Descriptor::sync() const {
  if (::fsync(value_) != 0)
    fail_storage("fsync " + path_, errno);
}

Draft::Draft(std::string path)
    : path_(std::move(path)), draft_(place(path_)), file_(draft_, O_RDWR | O_CREAT | O_TRUNC) {}

std::string Draft::place(const std::string& path) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}.{}-{}.part", path, host.data(), ::getpid());
}

Draft::~Draft() {
  if (!committed_)
    ::unlink(draft_.c_str());
}

void Draft::commit() {
  file_.sync();
  if (::rename(draft_.c_str(), path_.c_str()) != 0)
    fail_storage(fmt::format("rename {} to {}", draft_, path_), errno);
  committed_ = true;
  const auto parent = std::filesystem::path(path_).parent_path();
  Descriptor(parent.empty() ? "." : parent.string(), O_RDONLY | O_DIRECTORY).sync();
}

bool is_draft_of(std::string_view target, std::string_view name) {
  return name.starts_with(target) && name.substr(target.size()).starts_with('.') &&
         name.ends_with(".part");
}

void write_file(const std::string& path, std::string_view text) {
  Draft draft(path);
  draft.file().write(std::as_bytes(std::span(text)));
  draft.commit();
}

}  // namespace trireme::tokens
