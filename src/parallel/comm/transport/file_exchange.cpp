// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/file_exchange.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "comm/control/mpi_comm.hpp"
#include "comm/control/requests.hpp"

namespace trireme::comm {
namespace {

/// An abstract name: its first byte is 0, and there is no file.
socklen_t name_socket(sockaddr_un& address, const Nonce& nonce) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("trireme-{:016x}{:016x}", nonce[0], nonce[1]);
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

/// A message: the sender's nonce, and one file.
struct FileMessage {
  Nonce nonce{};
  iovec bytes{.iov_base = &nonce, .iov_len = sizeof nonce};
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

/// One rank's end of the exchange.
class Mailbox {
 public:
  Mailbox(int rank, int size, NodeReport& mine)
      : rank_(static_cast<std::size_t>(rank)),
        mine_(mine),
        files_(static_cast<std::size_t>(size)),
        missing_(size - 1) {
    socket_ = OwnedFile(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address;
    const socklen_t length = name_socket(address, mine.nonce);
    if (!socket_.is_open() ||
        bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
      mine.fail(errno, "open a socket for the ranks of the node");
  }

  /// Returns whether the message was sent: false while the peer's queue is full. Other failures go
  /// to the report.
  bool send(const OwnedFile& file, std::size_t peer, const Nonce& to) {
    FileMessage message;
    message.nonce = mine_.nonce;
    sockaddr_un address;
    message.header.msg_namelen = name_socket(address, to);
    message.header.msg_name = &address;
    cmsghdr* attached = CMSG_FIRSTHDR(&message.header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = file.get();
    std::memcpy(CMSG_DATA(attached), &fd, sizeof fd);
    if (sendmsg(socket_.get(), &message.header, MSG_NOSIGNAL) >= 0)
      return true;
    // Too many files of this user are in transit: handled like a full queue.
    if (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS || errno == ENOBUFS)
      return false;
    // Sockets of another network namespace do not exist here.
    mine_.fail(errno, fmt::format("reach rank {} of the node by a Unix socket{}", peer,
                                  errno == ECONNREFUSED ? " (private network namespaces?)" : ""));
    return true;
  }

  /// Receives all messages in the queue. Returns whether there were any.
  bool take(const std::vector<NodeReport>& senders) {
    bool any = false;
    for (;;) {
      FileMessage message;
      const ssize_t got = recvmsg(socket_.get(), &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
      if (got < 0)
        return any;
      OwnedFile file;
      for (cmsghdr* one = CMSG_FIRSTHDR(&message.header); one != nullptr;
           one = CMSG_NXTHDR(&message.header, one))
        if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS) {
          int fd = -1;
          std::memcpy(&fd, CMSG_DATA(one), sizeof fd);
          file = OwnedFile(fd);
        }
      const auto sender = std::ranges::find(senders, message.nonce, &NodeReport::nonce);
      const auto peer = static_cast<std::size_t>(sender - senders.begin());
      if (got != static_cast<ssize_t>(sizeof message.nonce) || sender == senders.end() ||
          peer == rank_ || taken(peer))
        continue;
      if (!file.is_open())
        mine_.fail(EMFILE, fmt::format("receive the file of rank {} of the node", peer));
      files_[peer] = std::move(file);
      --missing_;
      any = true;
    }
  }

  [[nodiscard]] bool complete() const { return missing_ == 0; }
  [[nodiscard]] std::vector<OwnedFile>& files() { return files_; }

 private:
  [[nodiscard]] bool taken(std::size_t peer) const { return files_[peer].is_open(); }

  std::size_t rank_;
  NodeReport& mine_;
  OwnedFile socket_;
  std::vector<OwnedFile> files_;
  int missing_;
};

}  // namespace

OwnedFile::~OwnedFile() {
  if (fd_ >= 0)
    close(fd_);
}

NodeReport::NodeReport() {
  if (getrandom(nonce.data(), sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce))
    fail(errno, "get random bytes");
}

void NodeReport::fail(int number, std::string_view what) {
  if (error != 0)
    return;
  error = number;
  what.copy(step.data(), step.size() - 1);
}

std::vector<NodeReport> exchange_reports(MPI_Comm node,
                                         Progress& progress,
                                         const NodeReport& mine,
                                         const std::function<bool()>& meanwhile) {
  const auto entered = progress.enter("sharing memory");
  std::vector<NodeReport> all(static_cast<std::size_t>(size_of(node)), mine);
  constexpr int bytes = sizeof(NodeReport);
  MPI_Request request = MPI_REQUEST_NULL;
  static_assert(std::is_trivially_copyable_v<NodeReport>);
  TRIREME_MPI(MPI_Iallgather(&mine, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, node, &request));
  await(request, progress, [&] { return meanwhile && meanwhile(); });
  return all;
}

std::vector<OwnedFile> exchange_files(
    MPI_Comm node,
    Progress& progress,
    const OwnedFile& file,
    NodeReport& mine,
    const std::function<void(const std::vector<NodeReport>&)>& agree) {
  const int rank = rank_of(node), size = size_of(node);
  Mailbox mailbox(rank, size, mine);
  const auto reports = exchange_reports(node, progress, mine);
  agree(reports);
  const auto take = [&] { return mailbox.take(reports); };
  {
    const auto entered = progress.enter("sharing memory");
    for (int step = 1; step < size && mine.error == 0; ++step) {
      const auto peer = static_cast<std::size_t>((rank + step) % size);
      while (!mailbox.send(file, peer, reports[peer].nonce))
        take() ? progress.moved() : progress.pause();
    }
  }
  agree(exchange_reports(node, progress, mine, take));
  // All messages are in the queue by now, so receiving them does not wait.
  take();
  if (!mailbox.complete())
    mine.fail(EIO, "receive a file that was sent");
  return std::move(mailbox.files());
}

}  // namespace trireme::comm
