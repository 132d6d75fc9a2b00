// SPDX-License-Identifier: Apache-2.0
#include "comm/control/mpi_comm.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include "comm/control/world.hpp"

namespace trireme::comm {
namespace {

struct Comms {
  std::mutex mutex;
  std::vector<MPI_Comm> all;
  std::atomic<bool> revoked{false};
  std::atomic<std::size_t> excluded{0};  // lost ranks of which this world has none
};

Comms& comms() {
  static Comms instance;
  return instance;
}

}  // namespace

bool ranks_are_lost() {
  return comms().revoked.load(std::memory_order_acquire);
}

MPI_Comm register_comm(MPI_Comm comm) {
  TRIREME_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  {
    const std::lock_guard lock(comms().mutex);
    comms().all.push_back(comm);
  }
  if (ranks_are_lost())  // revoke_all() may have missed it
    revoke_all();
  return comm;
}

void free_comm(MPI_Comm comm) {
  {
    const std::lock_guard lock(comms().mutex);
    std::erase(comms().all, comm);
  }
  MPI_Comm_free(&comm);
}

#ifdef OMPI_HAVE_MPI_EXT_FTMPI

std::string why_losses_end_all_ranks() {
  int started = 0, found = 0;
  TRIREME_MPI(MPI_Initialized(&started));
  if (started == 0)
    return {};
  int* enabled = nullptr;
  TRIREME_MPI(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_FT, static_cast<void*>(&enabled), &found));
  return found != 0 && *enabled != 0
             ? ""
             : "MPI ends all ranks when one is lost: start the run with mpirun --with-ft ulfm, as "
               "jobs/mpirun.sh and jobs/train.sbatch do";
}

bool means_lost_rank(int code) {
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  if (kind == MPIX_ERR_PROC_FAILED || kind == MPIX_ERR_PROC_FAILED_PENDING ||
      kind == MPIX_ERR_REVOKED)
    return true;
  // Collectives in progress may fail with any code, before the launcher has told of the loss. MPI
  // handles what the launcher tells only while a thread makes progress. On a rank that waits for
  // its GPU no other thread does, if the failed call was the watchdog's: so this one probes.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (lost_ranks(MPI_COMM_WORLD).size() <= comms().excluded) {
    if (std::chrono::steady_clock::now() > until)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    int waits = 0;  // its error code only says that ranks are lost
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &waits, MPI_STATUS_IGNORE);
  }
  return true;
}

std::vector<int> lost_ranks(MPI_Comm comm) {
  MPI_Group lost = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
  MPIX_Comm_get_failed(comm, &lost);
  MPI_Comm_group(comm, &all);
  int count = 0;
  MPI_Group_size(lost, &count);
  std::vector<int> numbers(static_cast<std::size_t>(count)), ranks(numbers.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  MPI_Group_translate_ranks(lost, count, numbers.data(), all, ranks.data());
  MPI_Group_free(&lost);
  MPI_Group_free(&all);
  return ranks;
}

bool agree(MPI_Comm comm, bool mine) {
  int all = mine ? 1 : 0;
  MPIX_Comm_agree(comm, &all);  // its error code only says that ranks are lost
  return all != 0;
}

namespace {

void revoke(MPI_Comm comm) {
  MPIX_Comm_revoke(comm);
}

MPI_Comm shrunk(MPI_Comm comm) {
  MPI_Comm rest = MPI_COMM_NULL;
  TRIREME_MPI(MPIX_Comm_shrink(comm, &rest));
  return rest;
}

}  // namespace

#else

std::string why_losses_end_all_ranks() {
  return "this MPI ends all ranks when one is lost: build with Open MPI 5";
}

bool means_lost_rank(int /*code*/) {
  return false;
}

std::vector<int> lost_ranks(MPI_Comm /*comm*/) {
  return {};
}

bool agree(MPI_Comm /*comm*/, bool mine) {
  return mine;
}

namespace {

void revoke(MPI_Comm /*comm*/) {}

MPI_Comm shrunk(MPI_Comm comm) {
  return comm;
}

}  // namespace

#endif

void revoke_all() {
  const std::lock_guard lock(comms().mutex);
  comms().revoked.store(true, std::memory_order_release);
  for (MPI_Comm comm : comms().all) revoke(comm);
}

MPI_Comm without_lost_ranks(MPI_Comm comm) {
  MPI_Comm rest = shrunk(comm);
  int ranks = 0, all = 0;
  TRIREME_MPI(MPI_Comm_size(rest, &ranks));
  TRIREME_MPI(MPI_Comm_size(MPI_COMM_WORLD, &all));
  comms().excluded = static_cast<std::size_t>(all - ranks);
  comms().revoked.store(false, std::memory_order_release);
  return rest;
}

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

OwnedComm OwnedComm::of_host(MPI_Comm comm) {
  MPI_Comm node = MPI_COMM_NULL;
  TRIREME_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  return OwnedComm(node);
}

int rank_of(MPI_Comm comm) {
  int rank = 0;
  TRIREME_MPI(MPI_Comm_rank(comm, &rank));
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  TRIREME_MPI(MPI_Comm_size(comm, &size));
  return size;
}

}  // namespace trireme::comm
