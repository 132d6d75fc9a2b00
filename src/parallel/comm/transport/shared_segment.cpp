// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shared_segment.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "base/text.hpp"
#include "device/buffer.hpp"

#include "comm/control/requests.hpp"
#include "comm/control/together.hpp"

namespace trireme::comm {
namespace {

/// Pieces begin at multiples of the largest page of a kernel, so that each has its own pages; large
/// ones at multiples of a huge page, so that these are possible.
constexpr std::int64_t largest_page = std::int64_t{64} << 10U, huge_page = std::int64_t{2} << 20U;

std::size_t distance_of(std::size_t bytes_of_piece) {
  const auto bytes = static_cast<std::int64_t>(bytes_of_piece);
  return static_cast<std::size_t>(rounded_up(bytes, bytes < huge_page ? largest_page : huge_page));
}

/// Random numbers of a rank: in the name of its socket, and in its messages.
struct Nonce {
  std::uint64_t name = 0, secret = 0;
};

class OwnedFile {
 public:
  OwnedFile() = default;
  explicit OwnedFile(int number) : number_(number) {}
  ~OwnedFile() {
    if (number_ >= 0)
      close(number_);
  }
  OwnedFile(OwnedFile&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OwnedFile& operator=(OwnedFile&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  OwnedFile(const OwnedFile&) = delete;
  OwnedFile& operator=(const OwnedFile&) = delete;
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_ = -1;
};

void expect(bool done, const char* step) {
  if (!done)
    throw std::system_error(errno, std::generic_category(), step);
}

Nonce new_nonce() {
  Nonce nonce;
  expect(getrandom(&nonce, sizeof nonce, 0) == static_cast<ssize_t>(sizeof nonce),
         "get random bytes");
  return nonce;
}

OwnedFile new_memory_file(std::size_t bytes) {
  OwnedFile file(memfd_create("trireme", MFD_CLOEXEC));
  expect(file.get() >= 0 && ftruncate(file.get(), static_cast<off_t>(bytes)) == 0,
         "create a memory file");
  return file;
}

OwnedFile new_socket() {
  OwnedFile made(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  expect(made.get() >= 0, "open a socket for the ranks of the node");
  return made;
}

/// The address of a rank's socket. An abstract name: its first byte is 0, and there is no file.
socklen_t name_socket(sockaddr_un& address, const Nonce& nonce) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("trireme-{:016x}", nonce.name);
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

OwnedFile bound_socket(const Nonce& nonce) {
  OwnedFile socket = new_socket();
  sockaddr_un address;
  const socklen_t length = name_socket(address, nonce);
  expect(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0,
         "open a socket for the ranks of the node");
  return socket;
}

/// A message: its sender's secret, and one file.
struct FileMessage {
  std::uint64_t secret = 0;
  iovec bytes{.iov_base = &secret, .iov_len = sizeof secret};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};

  FileMessage() {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  FileMessage(const FileMessage&) = delete;
  FileMessage& operator=(const FileMessage&) = delete;
};

void send(const OwnedFile& file, const Nonce& from, const Nonce& to, std::size_t peer) {
  FileMessage message;
  message.secret = from.secret;
  sockaddr_un address;
  message.header.msg_namelen = name_socket(address, to);
  message.header.msg_name = &address;
  cmsghdr* attached = CMSG_FIRSTHDR(&message.header);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = file.get();
  std::memcpy(CMSG_DATA(attached), &number, sizeof number);
  const OwnedFile socket = new_socket();  // its buffer has room for one message
  if (sendmsg(socket.get(), &message.header, MSG_NOSIGNAL) >= 0)
    return;
  const int error = errno;  // sockets of another network namespace do not exist here
  throw std::system_error(
      error, std::generic_category(),
      fmt::format("reach rank {} of the node by a Unix socket{}", peer,
                  error == ECONNREFUSED ? " (private network namespaces?)" : ""));
}

/// The file of the message from this sender, which is in the queue.
OwnedFile receive(const OwnedFile& socket, const Nonce& sender) {
  for (;;) {
    FileMessage message;
    const ssize_t got = recvmsg(socket.get(), &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    expect(got >= 0, "receive the memory file of the node");
    OwnedFile file;
    for (cmsghdr* one = CMSG_FIRSTHDR(&message.header); one != nullptr;
         one = CMSG_NXTHDR(&message.header, one))
      if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS) {
        int number = -1;
        std::memcpy(&number, CMSG_DATA(one), sizeof number);
        file = OwnedFile(number);
      }
    if (got != static_cast<ssize_t>(sizeof message.secret) || message.secret != sender.secret)
      continue;
    errno = EMFILE;  // the kernel leaves a file out if this process may open no more
    expect(file.get() >= 0, "receive the memory file of the node");
    return file;
  }
}

/// Every rank's nonce, by rank of the node. Collective over `node`.
std::vector<Nonce> gather(const Nonce& mine, MPI_Comm node, Progress& progress) {
  const auto entered = progress.enter("sharing memory");
  std::vector<Nonce> all(static_cast<std::size_t>(size_of(node)));
  constexpr int bytes = sizeof(Nonce);
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(MPI_Iallgather(&mine, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, node, &request));
  await(request, progress);
  return all;
}

std::byte* map(const OwnedFile& file, std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  expect(at != MAP_FAILED, "map the memory file of the node");
  madvise(at, bytes, MADV_HUGEPAGE);  // only advice to the kernel; failure is harmless
  return static_cast<std::byte*>(at);
}

/// Allocates every page of a piece, which is at `offset` of the file. Through the mapping, so that
/// huge pages are possible; kernels before 5.14 can do it only through the file.
void take_pages([[maybe_unused]] std::byte* at,
                const OwnedFile& file,
                std::size_t offset,
                std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0)
    return;
  if (errno == EFAULT)
    errno = ENOMEM;
  expect(errno == EINVAL, "allocate its pages");
#endif
  errno = posix_fallocate(file.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
  expect(errno == 0, "allocate its pages");
}

}  // namespace

SharedSegment::SharedSegment(MPI_Comm node,
                             MpiWorld& world,
                             std::size_t bytes,
                             std::string_view what)
    : bytes_(bytes),
      stride_(distance_of(bytes)),
      all_(nullptr, Unmap{stride_ * static_cast<std::size_t>(size_of(node))}) {
  const auto rank = static_cast<std::size_t>(rank_of(node));
  const std::size_t all_bytes = all_.get_deleter().bytes;
  const auto attempt = [&](const auto& action) {
    together(world, [&] {
      try {
        action();
      } catch (const std::system_error& problem) {
        throw CommError("shared memory",
                        fmt::format("share {} ({} bytes) for {}", bytes_text(bytes), bytes, what),
                        problem.what());
      }
    });
  };
  Nonce mine;
  OwnedFile file, socket;
  attempt([&] {
    mine = new_nonce();
    if (rank == 0)
      file = new_memory_file(all_bytes);
    else
      socket = bound_socket(mine);
  });
  const std::vector<Nonce> nonces = gather(mine, node, world.progress());
  attempt([&] {
    for (std::size_t peer = 1; rank == 0 && peer < nonces.size(); ++peer)
      send(file, mine, nonces[peer], peer);
  });
  attempt([&] {
    if (rank != 0)
      file = receive(socket, nonces.front());
    all_.reset(map(file, all_bytes));
    take_pages(piece(static_cast<int>(rank)), file, rank * stride_, bytes);
  });
}

void SharedSegment::Unmap::operator()(std::byte* at) const noexcept {
  if (!device::keeps_all_memory())
    munmap(at, bytes);
}

}  // namespace trireme::comm
