// SPDX-License-Identifier: Apache-2.0
// Continuing after some ranks have ended, by User Level Failure Mitigation (ULFM, MPI Forum ticket
// 323), which Open MPI 5 has with `mpirun --with-ft ulfm`. Without it, MPI ends all ranks when one
// ends.
//
// The first MPI call that notices a lost rank revokes all communicators, so that every other call
// on any rank fails too, and throws LostRank. The stack is unwound as after any other error. Then
// the remaining ranks make a new world (replace_after_loss()) and start over.
#pragma once

#include <vector>

#include <mpi.h>

namespace trireme::comm {

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

}  // namespace trireme::comm
