// SPDX-License-Identifier: Apache-2.0
// Every rank of a node sends one open file to every other rank of the node.
//
// The files are sent as SCM_RIGHTS messages between Unix sockets with abstract names (unix(7)). So
// a rank receives the file that its peer opened, even if the two are in different namespaces of
// processes, users and mounts. Process ids are not used: with one container per rank they name
// other processes. Ranks in different network namespaces cannot reach each other's sockets, and get
// an error.
//
// 1. A socket is named by 128 random bits (its nonce). Every message contains its sender's nonce,
//    which all ranks know from MPI. Messages from other senders are dropped.
// 2. No rank waits for a message before all ranks know that all messages were sent. So if a rank
//    cannot send, every rank gets an error instead of waiting.
// 3. Nothing remains in a file system.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <mpi.h>

#include "comm/control/progress.hpp"

namespace trireme::comm {

/// Owns an open file; the destructor closes it.
class OwnedFile {
 public:
  OwnedFile() = default;
  explicit OwnedFile(int fd) : fd_(fd) {}
  ~OwnedFile();
  OwnedFile(OwnedFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFile& operator=(OwnedFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  OwnedFile(const OwnedFile&) = delete;
  OwnedFile& operator=(const OwnedFile&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A number that identifies a process: 128 random bits.
using Nonce = std::array<std::uint64_t, 2>;

/// The status that a rank sends to the others of its node: success, or which step failed and why.
struct NodeReport {
  Nonce nonce{};                ///< this rank's
  std::int32_t error = 0;       ///< errno; 0: success
  std::array<char, 92> step{};  ///< the step that failed, for messages

  /// Success, with a new nonce.
  NodeReport();
  /// Records a failure, if it is the first.
  void fail(int number, std::string_view what);
};

/// Every rank's report, by local rank. Collective over `node`. `meanwhile` is called while waiting;
/// it returns whether it made progress.
std::vector<NodeReport> exchange_reports(MPI_Comm node,
                                         Progress& progress,
                                         const NodeReport& mine,
                                         const std::function<bool()>& meanwhile = {});

/// The peers' files by local rank; the entry of this rank is not open. Collective over `node`.
/// `agree` is called with the reports of all ranks on every rank, and throws when one has failed.
std::vector<OwnedFile> exchange_files(
    MPI_Comm node,
    Progress& progress,
    const OwnedFile& file,
    NodeReport& mine,
    const std::function<void(const std::vector<NodeReport>&)>& agree);

}  // namespace trireme::comm
