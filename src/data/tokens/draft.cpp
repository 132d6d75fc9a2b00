// SPDX-License-Identifier: Apache-2.0
#include "tokens/draft.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme::tokens {
namespace {

constexpr std::string_view draft_end = ".part";

}  // namespace

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

bool Descriptor::lock() const {
  return ::flock(value_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool Descriptor::in_place() const {
  struct stat held {
  }, found{};
  return ::fstat(value_, &held) == 0 && ::stat(path_.c_str(), &found) == 0 &&
         held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

Draft::Draft(std::string path) : path_(std::move(path)), draft_(place(path_)) {
  // Another container may have a process of this number, or be removing the file just now.
  for (int number = 2;; ++number) {
    file_.emplace(draft_, O_RDWR | O_CREAT);
    if (file_->lock() && file_->in_place())
      break;
    draft_ = place(path_, fmt::format("-{}", number));
  }
  if (std::filesystem::is_regular_file(draft_))
    file_->rewind(0);  // of a process of the same number that was killed
}

std::string Draft::place(const std::string& path, const std::string& suffix) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}.{}-{}{}{}", path, host.data(), ::getpid(), suffix, draft_end);
}

Draft::~Draft() {
  if (!committed_)
    ::unlink(draft_.c_str());
}

void Draft::commit() {
  file_->sync();
  if (::rename(draft_.c_str(), path_.c_str()) != 0)
    fail_storage(fmt::format("rename {} to {}", draft_, path_), errno);
  committed_ = true;
  const auto parent = std::filesystem::path(path_).parent_path();
  Descriptor(parent.empty() ? "." : parent.string(), O_RDONLY | O_DIRECTORY).sync();
}

namespace {

/// Whether `name` is TARGET.HOST-PID.part for one of the targets.
bool is_draft_of(const std::set<std::string>& targets, const std::string& name) {
  const auto dash = name.rfind('-');
  if (!name.ends_with(draft_end) || dash == std::string::npos)
    return false;
  const auto process = std::string_view(name).substr(dash + 1);
  const auto digits = process.find_first_not_of("0123456789");
  if (digits == 0 || process.substr(digits) != draft_end)
    return false;
  for (auto dot = name.find('.'); dot + 1 < dash; dot = name.find('.', dot + 1))
    if (targets.contains(name.substr(0, dot)))
      return true;
  return false;
}

}  // namespace

void remove_abandoned_drafts(const std::string& directory, const std::set<std::string>& targets) {
  std::error_code problem;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory.empty() ? "." : directory, problem)) {
    if (!is_draft_of(targets, entry.path().filename().string()))
      continue;
    const int file = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0)
      ::unlink(entry.path().c_str());
    if (file >= 0)
      ::close(file);
  }
}

void write_file(const std::string& path, std::string_view text) {
  Draft draft(path);
  draft.file().write(std::as_bytes(std::span(text)));
  draft.commit();
}

}  // namespace trireme::tokens
