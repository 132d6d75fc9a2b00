// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shared_segment.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/buffer.hpp"

#include "comm/control/mpi_comm.hpp"

namespace trireme::comm {
namespace {

std::byte* map(int file, std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED)
    return nullptr;
  madvise(at, bytes, MADV_HUGEPAGE);  // only advice to the kernel; failure is harmless
  return static_cast<std::byte*>(at);
}

/// Allocates every page of a new file. Through the mapping, so that huge pages are possible;
/// kernels before 5.14 can do it only through the file. Returns errno, or 0.
int take_pages([[maybe_unused]] std::byte* at, int file, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0)
    return 0;
  if (errno != EINVAL)
    return errno == EFAULT ? ENOMEM : errno;
#endif
  return posix_fallocate(file, 0, static_cast<off_t>(bytes));
}

}  // namespace

SharedSegment::SharedSegment(MPI_Comm node,
                             Progress& progress,
                             std::size_t bytes,
                             std::string_view what)
    : bytes_(bytes) {
  const int rank = rank_of(node);
  pieces_.assign(static_cast<std::size_t>(size_of(node)), nullptr);
  const auto agree = [&](const std::vector<NodeReport>& reports) {
    for (std::size_t r = 0; r < reports.size(); ++r)
      if (reports[r].error != 0)
        throw CommError("shared memory",
                        fmt::format("share {} ({} bytes) for {}", bytes_text(bytes), bytes, what),
                        fmt::format("{}: {} (on rank {} of the node)", reports[r].step.data(),
                                    std::strerror(reports[r].error), r));
  };
  NodeReport mine;
  try {
    const OwnedFile file = take_memory(rank, mine);
    const auto files = exchange_files(node, progress, file, mine, agree);
    for (std::size_t peer = 0; peer < files.size() && mine.error == 0; ++peer)
      if (peer != static_cast<std::size_t>(rank))
        map_peer(peer, files[peer], mine);
    agree(exchange_reports(node, progress, mine));
  } catch (...) {
    unmap();
    throw;
  }
}

OwnedFile SharedSegment::take_memory(int rank, NodeReport& mine) {
  OwnedFile file(memfd_create("trireme", MFD_CLOEXEC));
  if (!file.is_open() || ftruncate(file.get(), static_cast<off_t>(bytes_)) != 0) {
    mine.fail(errno, "create a memory file");
    return file;
  }
  std::byte* at = map(file.get(), bytes_);
  pieces_[static_cast<std::size_t>(rank)] = at;
  if (at == nullptr)
    mine.fail(errno, "map a memory file");
  else if (const int error = take_pages(at, file.get(), bytes_); error != 0)
    mine.fail(error, "allocate its pages");
  return file;
}

void SharedSegment::map_peer(std::size_t peer, const OwnedFile& file, NodeReport& mine) {
  struct stat found {};
  if (fstat(file.get(), &found) != 0)
    return mine.fail(errno, fmt::format("query the memory of rank {} of the node", peer));
  if (found.st_size != static_cast<off_t>(bytes_))
    return mine.fail(EINVAL,
                     fmt::format("the memory of rank {} of the node has another size", peer));
  pieces_[peer] = map(file.get(), bytes_);
  if (pieces_[peer] == nullptr)
    mine.fail(errno, fmt::format("map the memory of rank {} of the node", peer));
}

SharedSegment::~SharedSegment() {
  unmap();
}

void SharedSegment::unmap() noexcept {
  if (device::keeps_all_memory())
    return;
  for (std::byte*& piece : pieces_)
    if (piece != nullptr)
      munmap(std::exchange(piece, nullptr), bytes_);
}

}  // namespace trireme::comm
