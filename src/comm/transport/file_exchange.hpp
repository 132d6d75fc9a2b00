// SPDX-License-Identifier: Apache-2.0
// Every rank of a node hands one open file to every other rank of the node.
//
// The files travel as SCM_RIGHTS messages between Unix sockets with abstract names (unix(7)). So a
// rank gets the very file that its peer opened, whatever namespaces of processes, users and mounts
// the two live in. Process ids are not used: with one container per rank they name other processes.
// Ranks in network namespaces of their own cannot reach each other's sockets, and get an error.
//
// 1. A socket is named by 128 random bits, and every message carries its sender's, which all know
//    from MPI. Messages of other senders are dropped.
// 2. No rank waits for a message before all ranks know that all messages were sent: a rank that
//    cannot send is an error on every rank, and not a wait.
// 3. Nothing is left in a file system.
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

/// An open file that closes itself.
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

/// A number that no other process has: 128 random bits.
using Nonce = std::array<std::uint64_t, 2>;

/// The status that a rank sends to the others of its node: success, or which step failed and why.
struct NodeReport {
  Nonce nonce{};                ///< this rank's
  std::int32_t error = 0;       ///< errno; 0: all is well
  std::array<char, 92> step{};  ///< what failed, for people

  /// All is well, with a fresh nonce.
  NodeReport();
  /// Notes the first failure.
  void fail(int number, std::string_view what);
};

/// Every rank's report, by local rank. Collective over `node`. `meanwhile` is called while waiting;
/// returns whether it did anything.
std::vector<NodeReport> exchange_reports(MPI_Comm node,
                                         Progress& progress,
                                         const NodeReport& mine,
                                         const std::function<bool()>& meanwhile = {});

/// The peers' files by local rank, the own entry closed. Collective over `node`. `reports` becomes
/// the reports of all ranks at the start. `agree` is called with them, on every rank alike,
/// and throws when one has failed.
std::vector<OwnedFile> exchange_files(
    MPI_Comm node,
    Progress& progress,
    const OwnedFile& file,
    NodeReport& mine,
    std::vector<NodeReport>& reports,
    const std::function<void(const std::vector<NodeReport>&)>& agree);

}  // namespace trireme::comm
