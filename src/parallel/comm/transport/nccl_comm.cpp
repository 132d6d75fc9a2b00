// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/nccl_comm.hpp"

#include <cstring>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "base/threads.hpp"
#include "device/cuda/handle.hpp"

#include "comm/control/mpi_comm.hpp"
#include "comm/control/mpi_world.hpp"

namespace trireme::comm {
namespace {

/// NCCL accepts a collective within some tens of microseconds, and the host then has kernels to
/// launch: so wait() does not sleep during this time.
constexpr auto poll_at_once_for = std::chrono::milliseconds(1);
constexpr auto poll_every = std::chrono::microseconds(200);
constexpr auto look_every = std::chrono::milliseconds(100);

/// Rank 0's id, on every rank.
ncclUniqueId shared_id(World& world) {
  ncclUniqueId id{};
  std::string bytes;
  std::string failure;
  if (world.rank() == 0) {
    if (const auto status = ncclGetUniqueId(&id); status != ncclSuccess)
      failure = fmt::format("{}: {}", ncclGetErrorString(status), ncclGetLastError(nullptr));
    else
      bytes.assign(id.internal, sizeof id.internal);
  }
  bytes = world.broadcast(std::move(bytes), 0);
  if (bytes.size() != sizeof id.internal)
    throw CommError("NCCL", "ncclGetUniqueId", failure.empty() ? "failed on rank 0" : failure);
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

MpiWorld* watched(World& world) {
  return world.size() > 1 ? dynamic_cast<MpiWorld*>(&world) : nullptr;
}

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

}  // namespace

NcclComm::NcclComm(World& world, device::Device& device, int most_blocks)
    : world_(world),
      device_(device),
      deadline_s_(world.deadline_s()),
      watchdog_(watched(world) != nullptr ? &watched(world)->watchdog() : nullptr),
      lane_(watchdog_ != nullptr ? &watchdog_->add(watched(world)->lane_part()) : nullptr) {
  const ncclUniqueId id = shared_id(world);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = "trireme";
#endif
  if (most_blocks > 0)
    config.maxCTAs = most_blocks;
  for (Entry& entry : ring_) entry.end = device.make_event();  // also makes the GPU current
  try {
    const std::lock_guard lock(mutex_);
    wait(ncclCommInitRankConfig(&comm_, world.size(), id, world.rank(), &config),
         "ncclCommInitRankConfig");
  } catch (const LostRank&) {
    abort();
    throw;
  }
  moved_ = last_check_ = Clock::now();
  monitor_ = start_thread("nccl-monitor", [this] { watch(); });
}

NcclComm::~NcclComm() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (monitor_.joinable())
    monitor_.join();
  if (lane_ != nullptr)
    watchdog_->remove(*lane_);
  if (std::uncaught_exceptions() > 0 || ranks_are_lost())
    abort();
  if (comm_ == nullptr)
    return;
  try {
    const std::lock_guard lock(mutex_);
    wait(ncclCommFinalize(comm_), "ncclCommFinalize");
    // A non-blocking communicator may still be in progress; there is no handle left to query.
    if (const auto status = ncclCommDestroy(comm_);
        status != ncclSuccess && status != ncclInProgress)
      error_line("warning: ncclCommDestroy failed: {}", ncclGetErrorString(status));
  } catch (const std::exception& problem) {
    error_line("warning: {}", problem.what());
    abort();
  }
}

std::string NcclComm::error_text(ncclResult_t status) const {
  return fmt::format("{}; last: {}", ncclGetErrorString(status), last_message());
}

std::string NcclComm::last_message() const {
  const char* last = ncclGetLastError(comm_);
  return last != nullptr && *last != '\0' ? last : "nothing";
}

void NcclComm::wait(ncclResult_t status, const std::string& statement) {
  const auto since = Clock::now();
  while (status == ncclInProgress) {
    const auto waited = Clock::now() - since;
    expect_all_ranks(statement);
    if (std::chrono::duration<double>(waited).count() > deadline_s_)
      throw CommError("NCCL", statement, fmt::format("in progress for {:.0f} s", deadline_s_));
    if (waited < poll_at_once_for)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(poll_every);
    if (const auto asked = ncclCommGetAsyncError(comm_, &status); asked != ncclSuccess)
      status = asked;
  }
  if (status == ncclSuccess)
    return;
  if (loses_a_rank())
    expect_all_ranks(statement);
  throw CommError("NCCL", statement, error_text(status));
}

bool NcclComm::loses_a_rank() const {
  if (!world_.continues_after_loss || (!ranks_are_lost() && !means_lost_rank(MPI_ERR_OTHER)))
    return false;
  revoke_all();
  return true;
}

void NcclComm::expect_all_ranks(const std::string& statement) {
  if (ranks_are_lost())
    abort();
  if (comm_ == nullptr)
    throw LostRank("NCCL", statement, "a rank was lost");
}

void NcclComm::abort() {
  if (comm_ != nullptr)
    ncclCommAbort(std::exchange(comm_, nullptr));
}

void NcclComm::run(const std::string& statement,
                   const std::function<ncclResult_t(ncclComm_t)>& call) {
  const std::lock_guard lock(mutex_);
  expect_all_ranks(statement);
  wait(call(comm_), statement);
}

void NcclComm::collective(const char* operation,
                          BucketIndex bucket,
                          device::Stream& stream,
                          const std::function<ncclResult_t(ncclComm_t)>& call) {
  std::unique_lock lock(mutex_);
  const Collective collective{operation, bucket, true};
  Entry& entry = ring_[head_ % ring_size];
  if (head_ - tail_ == ring_size) {
    lock.unlock();
    entry.end->wait();
    lock.lock();
    expect_all_ranks(operation);
    static_cast<void>(find_error());  // drops entries that have ended
  }
  expect_all_ranks(operation);
  if (lane_ != nullptr)
    watchdog_->enter(*lane_, collective);
  const ncclResult_t status = call(comm_);
  wait(status, status == ncclInProgress || status == ncclSuccess ? operation : collective.text());
  stream.record(*entry.end);
  if (head_ == tail_)
    moved_ = last_check_ = Clock::now();
  entry.collective = collective;
  ++head_;
}

std::string NcclComm::find_error() {
  ncclResult_t status = ncclSuccess;
  if (const auto asked = ncclCommGetAsyncError(comm_, &status); asked != ncclSuccess)
    status = asked;
  for (; tail_ != head_ && ring_[tail_ % ring_size].end->reached(); ++tail_) {
    moved_ = last_check_ = Clock::now();
    all_were_there_ = false;
  }
  if (tail_ == head_ && lane_ != nullptr)
    watchdog_->leave(*lane_);
  if (status == ncclSuccess || status == ncclInProgress)
    return {};
  return fmt::format(
      "NCCL: {} failed: {}",
      tail_ == head_ ? "nothing was enqueued, but the communicator" : oldest().text(),
      error_text(status));
}

std::string NcclComm::check_ranks(std::unique_lock<std::timed_mutex>& lock) {
  const double idle_s = seconds_since(moved_);
  const std::string last = last_message(), what = oldest().text();
  const auto still = [&](const std::string& why) {
    return fmt::format("NCCL: {} has not ended for {:.0f} s; {}; last: {}", what, idle_s, why,
                       last);
  };
  if (lane_ == nullptr)
    return still("there is no other rank");
  Watchdog::Lane asked = *lane_;
  asked.sequence = static_cast<std::int64_t>(tail_) + 1;
  asked.collective = oldest();
  bool all_were_there = all_were_there_;
  lock.unlock();
  auto found = Watchdog::Finding::keep_waiting;
  try {
    found = watchdog_->check_ranks(asked, idle_s, all_were_there);
  } catch (const CommError& error) {
    return fmt::format("{}; NCCL's last message: {}", error.what(), last);
  }
  lock.lock();
  all_were_there_ = all_were_there;
  last_check_ = Clock::now();
  return found == Watchdog::Finding::no_progress
             ? still("all ranks have enqueued it, but no data arrives")
             : std::string();
}

void NcclComm::watch() {
  device::cuda::make_current(device_);
  std::unique_lock lock(mutex_, std::defer_lock);
  std::string found;
  while (found.empty()) {
    // A thread that holds the lock for longer than the deadline is blocked inside NCCL.
    if (!lock.try_lock_for(std::chrono::duration<double>(deadline_s_ + 1))) {
      found = fmt::format("NCCL: a call has not returned for {:.0f} s", deadline_s_);
      break;
    }
    if (wake_.wait_for(lock, look_every, [&] { return stopping_ || comm_ == nullptr; }))
      return;
    try {
      found = ranks_are_lost() ? "a rank was lost" : find_error();
      if (found.empty() && tail_ != head_ && seconds_since(last_check_) >= deadline_s_)
        found = check_ranks(lock);
    } catch (const std::exception& problem) {  // the GPU itself has failed
      found = problem.what();
    }
    if (found.empty())
      lock.unlock();
  }
  const auto locked = [&] {
    return lock.owns_lock() || lock.try_lock_for(std::chrono::seconds(1));
  };
  if (loses_a_rank() && locked())
    return abort();  // what is enqueued ends, with any values
  error_line("[rank {} {}] error: {}", world_.rank_of_run(), world_.host(), found);
  if (locked())
    abort();
  world_.abort(ExitCode::environment);
}

}  // namespace trireme::comm
