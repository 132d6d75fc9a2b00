// SPDX-License-Identifier: Apache-2.0
// Checked MPI calls, communicators, and the loss of ranks.
//
// Every MPI call goes through TRIREME_MPI: a code other than MPI_SUCCESS becomes a CommError with
// the statement, the source line and MPI's own message. The communicators have MPI_ERRORS_RETURN;
// otherwise MPI would end the process before the reason is printed.
//
// A run may continue after some ranks have ended, by User Level Failure Mitigation (ULFM, MPI Forum
// ticket 323), which Open MPI 5 has with `mpirun --with-ft ulfm`. Without it, MPI ends all ranks
// when one ends.
//
// The first MPI call that notices a lost rank revokes all communicators, so that every other call
// on any rank fails too, and throws LostRank. The stack is unwound as after any other error. Then
// the remaining ranks make a new world (replace_after_loss()) and start over.
#pragma once

#include <vector>

#include <mpi.h>

namespace trireme::comm {

void check_mpi(int code,
               const char* statement,
               const char* file = __builtin_FILE(),
               int line = __builtin_LINE());

int rank_of(MPI_Comm comm);
int size_of(MPI_Comm comm);

/// Whether the error `code` is due to a lost rank: MPI says so, or a rank of this world is lost
/// within 10 seconds.
bool means_lost_rank(int code);

/// Whether the communicators are revoked: their pending requests complete with an error.
bool ranks_are_lost();

/// Revokes all communicators of this rank. From any thread.
void revoke_all();

/// Sets MPI_ERRORS_RETURN and makes revoke_all() include `comm`, until free_comm(). Returns it.
MPI_Comm register_comm(MPI_Comm comm);
void free_comm(MPI_Comm comm);

/// The ranks of `comm` that have ended, as far as this rank knows.
std::vector<int> lost_ranks(MPI_Comm comm);

/// A communicator of the ranks of `comm` that are left. Collective over them.
MPI_Comm without_lost_ranks(MPI_Comm comm);

/// Whether `mine` is true on all ranks of `comm` that are left. Collective over them; tolerates
/// losses.
bool agree(MPI_Comm comm, bool mine);

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
  /// The ranks of `comm` that can share memory with this one, as MPI reports it. Collective.
  static OwnedComm of_host(MPI_Comm comm);

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_of(comm_); }
  [[nodiscard]] int size() const { return size_of(comm_); }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace trireme::comm

#define TRIREME_MPI(call) ::trireme::comm::check_mpi((call), #call)
