// SPDX-License-Identifier: Apache-2.0
// An MPI communicator that frees itself.
#pragma once

#include <mpi.h>

namespace trireme::comm {

/// Owns one MPI communicator. Its destructor frees it, unless MPI is finalized by then.
class OwnedComm {
 public:
  OwnedComm() = default;
  /// Takes ownership of `comm` and sets MPI_ERRORS_RETURN.
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

}  // namespace trireme::comm
