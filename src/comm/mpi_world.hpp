// SPDX-License-Identifier: Apache-2.0
// The MPI world, for the transports of this room: they need its communicator to make their own.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/world.hpp"

namespace trireme::comm {

/// Owns one MPI communicator. Frees it when it dies, unless MPI is finalized by then.
class OwnedComm {
 public:
  OwnedComm() = default;
  /// Takes over `comm` and makes its errors come back as codes.
  explicit OwnedComm(MPI_Comm comm);
  ~OwnedComm();
  OwnedComm(OwnedComm&& other) noexcept;
  OwnedComm& operator=(OwnedComm&& other) noexcept;
  OwnedComm(const OwnedComm&) = delete;
  OwnedComm& operator=(const OwnedComm&) = delete;

  /// Collective over `comm`.
  static OwnedComm duplicate(MPI_Comm comm);

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

class MpiWorld final : public World {
 public:
  MpiWorld();

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] int local_rank() const override { return local_rank_; }
  [[nodiscard]] int local_size() const override { return local_size_; }
  [[nodiscard]] const std::string& host() const override { return host_; }

  void barrier() override;
  void sum(std::span<std::int64_t> values) override;
  void max(std::span<std::int64_t> values) override;
  std::vector<double> gather_all(std::span<const double> values) override;
  std::vector<std::string> gather_all(const std::string& text) override;
  std::string broadcast(std::string bytes, int root) override;
  [[noreturn]] void abort(ExitCode code) noexcept override;

  /// The control plane's communicator; transports duplicate it.
  [[nodiscard]] MPI_Comm comm() const { return comm_.get(); }
  /// From now on a sum or maximum that waits for longer is a CommError; at first they wait for
  /// ever. They are what a step exchanges beside its buckets; other exchanges may wait for one
  /// rank's work on files.
  void limit_waiting(double deadline_s) { deadline_s_ = deadline_s; }

 private:
  void reduce(std::span<std::int64_t> values, MPI_Op op, const char* what);

  OwnedComm comm_;
  double deadline_s_ = std::numeric_limits<double>::infinity();
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::string host_;
};

}  // namespace trireme::comm
