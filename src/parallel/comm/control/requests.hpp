// SPDX-License-Identifier: Apache-2.0
// Helpers for MPI requests.
#pragma once

#include <span>

#include <mpi.h>

#include "base/on_exit.hpp"
#include "device/buffer.hpp"

#include "comm/control/mpi_comm.hpp"
#include "comm/control/progress.hpp"

namespace trireme::comm {

/// Cancels the requests that are still active when a collective fails. From then on no memory is
/// freed: MPI may write messages that it has begun to receive, and peers may send more. After a
/// lost rank, waits until MPI has completed them with an error. Does nothing after success.
class CancelOnExit {
 public:
  explicit CancelOnExit(std::span<MPI_Request> requests) : requests_(requests) {}
  ~CancelOnExit() {
    for (MPI_Request& request : requests_)
      if (request != MPI_REQUEST_NULL && ranks_are_lost()) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);  // ends at once: its communicator is revoked
      } else if (request != MPI_REQUEST_NULL) {
        device::keep_all_memory();
        MPI_Cancel(&request);
        MPI_Request_free(&request);
      }
  }
  CancelOnExit(const CancelOnExit&) = delete;
  CancelOnExit& operator=(const CancelOnExit&) = delete;

 private:
  std::span<MPI_Request> requests_;
};

inline bool completed(MPI_Request& request) {
  int flag = 0;
  TRIREME_MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
  return flag != 0;
}

/// Waits inside the current collective until an MPI collective is complete. `meanwhile` returns
/// whether it made progress. After a lost rank, also waits until MPI has released the collective
/// and its memory, because MPI cannot cancel collectives.
template <class Meanwhile>
void await(MPI_Request& request, Progress& progress, const Meanwhile& meanwhile) {
  const OnExit give_up([&] {
    if (request != MPI_REQUEST_NULL && ranks_are_lost())
      MPI_Wait(&request, MPI_STATUS_IGNORE);
  });
  while (!completed(request))
    if (!meanwhile())
      progress.pause();
  progress.moved();
}
inline void await(MPI_Request& request, Progress& progress) {
  await(request, progress, [] { return false; });
}

}  // namespace trireme::comm
