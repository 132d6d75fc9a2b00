// SPDX-License-Identifier: Apache-2.0
#include "h5/raw_file.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace trireme::h5 {

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

RawFile::RawFile(const std::string& path)
    : file_(files::Descriptor::regular(path, O_RDWR)),
      direct_(::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC)) {}

RawFile::~RawFile() {
  if (direct_ >= 0)
    ::close(direct_);
}

void RawFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  const std::size_t written = write_direct(offset, bytes);
  file_.write_at(offset + static_cast<std::int64_t>(written), bytes.subspan(written));
}

std::size_t RawFile::write_direct(std::int64_t offset, std::span<const std::byte> bytes) {
  if (direct_ < 0 || static_cast<std::uint64_t>(offset) % page_bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes != 0)
    return 0;
  const std::size_t whole = bytes.size() / page_bytes * page_bytes;
  std::size_t done = 0;
  while (done < whole) {
    const auto written = ::pwrite(direct_, bytes.data() + done, whole - done,
                                  offset + static_cast<std::int64_t>(done));
    if (written < 0 && errno == EINTR)
      continue;
    // Refused: larger pages are asked for, or the disk is full. A cached write reports it.
    if (written <= 0 || static_cast<std::size_t>(written) % page_bytes != 0) {
      ::close(std::exchange(direct_, -1));
      break;
    }
    done += static_cast<std::size_t>(written);
  }
  return done;
}

void RawFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  if (file_.read_some(offset, bytes) != bytes.size())
    files::fail("read " + file_.path(), ENODATA);
}

}  // namespace trireme::h5
