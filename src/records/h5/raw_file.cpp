// SPDX-License-Identifier: Apache-2.0
#include "h5/raw_file.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace trireme::h5 {

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
  file_.begin_transfer(offset, std::ssize(bytes));
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
