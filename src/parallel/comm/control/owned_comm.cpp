// SPDX-License-Identifier: Apache-2.0
#include "comm/control/owned_comm.hpp"

#include <utility>

#include "comm/control/lost_ranks.hpp"
#include "comm/control/mpi_check.hpp"

namespace trireme::comm {

OwnedComm::OwnedComm(MPI_Comm comm) : comm_(comm) {
  if (comm_ != MPI_COMM_NULL)
    register_comm(comm_);
}

OwnedComm::~OwnedComm() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (comm_ != MPI_COMM_NULL && finalized == 0)
    free_comm(comm_);
}

OwnedComm::OwnedComm(OwnedComm&& other) noexcept
    : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

OwnedComm& OwnedComm::operator=(OwnedComm&& other) noexcept {
  std::swap(comm_, other.comm_);
  return *this;
}

OwnedComm OwnedComm::duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  TRIREME_MPI(MPI_Comm_dup(comm, &copy));
  return OwnedComm(copy);
}

int OwnedComm::rank() const {
  int value = 0;
  TRIREME_MPI(MPI_Comm_rank(comm_, &value));
  return value;
}

int OwnedComm::size() const {
  int value = 0;
  TRIREME_MPI(MPI_Comm_size(comm_, &value));
  return value;
}

}  // namespace trireme::comm
