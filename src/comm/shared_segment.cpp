// SPDX-License-Identifier: Apache-2.0
#include "comm/shared_segment.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text.hpp"

#include "comm/mpi_check.hpp"
#include "comm/requests.hpp"

namespace trireme::comm {
namespace {

/// A file descriptor that closes itself.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0)
      close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

/// What one rank tells the others: where its file is, or why there is none.
struct Offer {
  std::int64_t process = 0;
  std::int32_t file = -1;
  std::int32_t error = 0;
};

std::byte* map(int file, std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED)
    return nullptr;
  madvise(at, bytes, MADV_HUGEPAGE);  // advice only; without it everything still works
  return static_cast<std::byte*>(at);
}

/// Takes every page of a fresh file now. Through the mapping, so that huge pages are possible;
/// kernels before 5.14 know only the file's own call. Returns errno, or 0.
int take_pages([[maybe_unused]] std::byte* at, int file, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0)
    return 0;
  if (errno != EINVAL)
    return errno == EFAULT ? ENOMEM : errno;
#endif
  return posix_fallocate(file, 0, static_cast<off_t>(bytes));
}

/// Throws on every rank when any reports an error.
void agree(const std::vector<Offer>& offers, std::size_t bytes, std::string_view what) {
  for (std::size_t r = 0; r < offers.size(); ++r)
    if (offers[r].error != 0)
      throw CommError("shared memory",
                      fmt::format("share {} ({} bytes) for {}",
                                  bytes_text(static_cast<double>(bytes)), bytes, what),
                      fmt::format("{} (on rank {} of the node)", std::strerror(offers[r].error), r),
                      __FILE__, __LINE__);
}

std::vector<Offer> exchange(MPI_Comm node, Progress& progress, const Offer& mine, int size) {
  const auto entered = progress.enter("sharing memory");
  std::vector<Offer> all(static_cast<std::size_t>(size));
  constexpr int bytes = sizeof(Offer);
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(MPI_Iallgather(&mine, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, node, &request));
  while (!completed(request)) progress.pause();
  return all;
}

}  // namespace

SharedSegment::SharedSegment(MPI_Comm node,
                             Progress& progress,
                             std::size_t bytes,
                             std::string_view what)
    : bytes_(bytes) {
  int rank = 0, size = 1;
  TRIREME_MPI(MPI_Comm_rank(node, &rank));
  TRIREME_MPI(MPI_Comm_size(node, &size));
  pieces_.assign(static_cast<std::size_t>(size), nullptr);

  const File file(memfd_create("trireme", MFD_CLOEXEC));
  Offer mine{getpid(), file.get(), 0};
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    mine.error = errno;
  else if (std::byte* at = map(file.get(), bytes); at == nullptr)
    mine.error = errno;
  else {
    pieces_[static_cast<std::size_t>(rank)] = at;
    mine.error = take_pages(at, file.get(), bytes);
  }
  try {
    const std::vector<Offer> offers = exchange(node, progress, mine, size);
    agree(offers, bytes, what);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank)
        continue;
      const Offer& offer = offers[static_cast<std::size_t>(peer)];
      const File theirs(open(fmt::format("/proc/{}/fd/{}", offer.process, offer.file).c_str(),
                             O_RDWR | O_CLOEXEC));
      std::byte* at = theirs.get() < 0 ? nullptr : map(theirs.get(), bytes);
      if (at == nullptr) {
        mine.error = errno;
        break;
      }
#ifdef MADV_POPULATE_READ
      madvise(at, bytes, MADV_POPULATE_READ);  // advice only: the page table now, not in a step
#endif
      pieces_[static_cast<std::size_t>(peer)] = at;
    }
    // Also keeps every file open until all have mapped it.
    agree(exchange(node, progress, mine, size), bytes, what);
  } catch (...) {
    unmap();
    throw;
  }
}

SharedSegment::~SharedSegment() {
  unmap();
}

void SharedSegment::unmap() noexcept {
  for (std::byte*& piece : pieces_)
    if (piece != nullptr)
      munmap(std::exchange(piece, nullptr), bytes_);
}

}  // namespace trireme::comm
