// SPDX-License-Identifier: Apache-2.0
#include "h5/journal.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.hpp"

namespace trireme::h5 {
namespace {

constexpr std::uint64_t magic = 0x314c4e524a455254;  // "TREJRNL1"
/// Kept on the disk, so that a disk that fills does not refuse the next small one.
constexpr off_t room_bytes = off_t{2} << 20;

struct Header {
  std::uint64_t magic = 0;
  std::int64_t pages = 0;
  std::int64_t end = 0;
  std::uint64_t hash = 0;  ///< of this header with 0 in this place, and of all entries
};
struct Entry {
  std::int64_t page = 0;
  Page before{}, after{};
};

std::int64_t offset_of(std::int64_t page) {
  return page * static_cast<std::int64_t>(page_size);
}

std::string_view text_of(const void* data, std::size_t count) {
  return {static_cast<const char*>(data), count};
}

/// Whether the page is one of the two, or what an interrupted write makes of them.
bool is_between(const Page& now, const Entry& entry) {
  for (std::size_t i = 0; i < now.size(); ++i)
    if (now[i] != entry.before[i] && now[i] != entry.after[i])
      return false;
  return true;
}

std::uint64_t hash_of(Header header, const std::vector<Entry>& entries) {
  header.hash = 0;
  const std::uint64_t first = hash_bytes(text_of(&header, sizeof header));
  return hash_bytes(text_of(entries.data(), entries.size() * sizeof(Entry)), first);
}

/// The name of a new file, once it is on the disk. A file system without sync of directories gives
/// EINVAL; one may be allowed to make files in a directory and not to read it.
int sync_name(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int directory = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0)
    return errno == EACCES ? 0 : errno;
  const int problem = ::fsync(directory) == 0 || errno == EINVAL ? 0 : errno;
  ::close(directory);
  return problem;
}

/// The pages in runs that follow one another, each in one call; nothing after `end`.
int write_pages(int file, const Pages& pages, std::int64_t end) {
  std::vector<std::byte> run;
  for (auto at = pages.begin(); at != pages.end();) {
    const std::int64_t begin = at->first;
    run.clear();
    for (; at != pages.end() && at->first == begin + std::ssize(run) / std::ssize(at->second); ++at)
      run.insert(run.end(), at->second.begin(), at->second.end());
    const std::int64_t offset = offset_of(begin);
    const std::int64_t count = std::min(std::ssize(run), end - offset);
    if (count <= 0)
      break;
    if (const int problem = write_all(file, run.data(), static_cast<std::size_t>(count), offset))
      return problem;
  }
  return 0;
}

int resize(int file, std::int64_t end) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0)
    return errno;
  return facts.st_size == end || ::ftruncate(file, end) == 0 ? 0 : errno;
}

}  // namespace

std::string journal_of(const std::string& path) {
  return path + ".journal";
}

int write_all(int file, const void* from, std::size_t count, std::int64_t offset) {
  const auto* bytes = static_cast<const std::byte*>(from);
  while (count > 0) {
    const auto written = ::pwrite(file, bytes, count, offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return written < 0 ? errno : ENOSPC;
    bytes += written;
    count -= static_cast<std::size_t>(written);
    offset += written;
  }
  return 0;
}

int read_all(int file, void* to, std::size_t count, std::int64_t offset) {
  auto* bytes = static_cast<std::byte*>(to);
  while (count > 0) {
    const auto got = ::pread(file, bytes, count, offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return errno;
    if (got == 0) {
      std::memset(bytes, 0, count);
      return 0;
    }
    bytes += got;
    count -= static_cast<std::size_t>(got);
    offset += got;
  }
  return 0;
}

int sync_data(int file) {
  int result = 0;
  do {
    result = ::fdatasync(file) == 0 ? 0 : errno;
  } while (result == EINTR);
  return result == EINVAL || result == ENOSYS ? 0 : result;
}

Journal::~Journal() {
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

void Journal::settle(int file) noexcept {
  if (descriptor_ >= 0 && !whole_ && sync_data(file) == 0)
    ::unlink(path_.c_str());
}

int Journal::open() {
  if (descriptor_ >= 0)
    return 0;
  descriptor_ = ::open(path_.c_str(),
                       O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0666);
  struct stat facts {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &facts) != 0)
    return errno;
  if (!S_ISREG(facts.st_mode)) {
    ::close(std::exchange(descriptor_, -1));
    return EINVAL;
  }
  // On a file system that cannot reserve space, a full disk may still end the run here.
  static_cast<void>(::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, room_bytes));
  return sync_name(path_);
}

int Journal::replace(int file, const Pages& pages, std::int64_t end) {
  if (whole_)
    return EIO;
  if (pages.empty()) {
    const int problem = resize(file, end);
    return problem != 0 ? problem : sync_data(file);
  }
  std::vector<Entry> entries;
  entries.reserve(pages.size());
  for (const auto& [number, page] : pages) {
    Entry& entry = entries.emplace_back();
    entry.page = number;
    entry.after = page;
    if (const int problem = read_all(file, entry.before.data(), page_size, offset_of(number)))
      return problem;
  }
  // What the last journal put there, and what was added after the end.
  if (const int problem = sync_data(file))
    return problem;
  if (const int problem = open())
    return problem;
  Header header{magic, std::ssize(entries), end, 0};
  header.hash = hash_of(header, entries);
  int problem =
      write_all(descriptor_, entries.data(), entries.size() * sizeof(Entry), sizeof header);
  problem = problem != 0 ? problem : write_all(descriptor_, &header, sizeof header, 0);
  problem = problem != 0 ? problem : sync_data(descriptor_);
  if (problem != 0)
    return problem;
  whole_ = true;
  problem = write_pages(file, pages, end);
  problem = problem != 0 ? problem : resize(file, end);
  whole_ = problem != 0;
  return problem;
}

int Journal::read(int file, Left& left) const {
  struct stat facts {};
  if (::fstat(file, &facts) != 0)
    return errno;
  left = {.pages = {}, .end = facts.st_size, .valid = false};
  const int journal = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (journal < 0)
    return errno == ENOENT ? 0 : errno;
  const auto look = [&]() -> int {
    Header header;
    if (::fstat(journal, &facts) != 0)
      return errno;
    if (!S_ISREG(facts.st_mode))
      return S_ISDIR(facts.st_mode) ? EISDIR : EINVAL;
    if (const int problem = read_all(journal, &header, sizeof header, 0))
      return problem;
    constexpr auto one = static_cast<std::int64_t>(sizeof(Entry));
    if (header.magic != magic || header.pages < 0 || header.end < 0 ||
        header.pages > (facts.st_size - static_cast<std::int64_t>(sizeof header)) / one)
      return 0;
    std::vector<Entry> entries(static_cast<std::size_t>(header.pages));
    if (const int problem =
            read_all(journal, entries.data(), entries.size() * sizeof(Entry), sizeof header))
      return problem;
    if (hash_of(header, entries) != header.hash)
      return 0;
    Left found{.pages = {}, .end = header.end, .valid = true};
    for (const Entry& entry : entries) {
      Page now{};
      if (entry.page < 0 || entry.page > header.end / static_cast<std::int64_t>(page_size))
        return 0;
      if (const int problem = read_all(file, now.data(), page_size, offset_of(entry.page)))
        return problem;
      if (!is_between(now, entry))
        return 0;
      found.pages.emplace(entry.page, entry.after);
    }
    left = std::move(found);
    return 0;
  };
  const int result = look();
  ::close(journal);
  return result;
}

int Journal::finish(int file) {
  Left left;
  if (const int problem = read(file, left))
    return problem;
  if (!left.valid) {
    ::unlink(path_.c_str());  // it means nothing
    return 0;
  }
  if (const int problem = open())
    return problem;
  whole_ = true;
  if (const int problem = write_pages(file, left.pages, left.end))
    return problem;
  if (const int problem = resize(file, left.end))
    return problem;
  whole_ = false;
  return 0;
}

}  // namespace trireme::h5
