// SPDX-License-Identifier: Apache-2.0
// The World of an MPI run. Transports derive their communicators from its communicator and use its
// watchdog.
//
// All exchanges are non-blocking MPI collectives that are polled, with sleeps in between
// (progress.hpp). MPI's blocking calls would keep a core busy that a communication thread or
// another rank may need, and have no deadline.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/control/mpi_comm.hpp"
#include "comm/control/progress.hpp"
#include "comm/control/watchdog.hpp"
#include "comm/control/world.hpp"

namespace trireme::comm {

class MpiWorld final : public World {
 public:
  /// A duplicate of `base`, which must outlive it. Collective.
  explicit MpiWorld(MPI_Comm base = MPI_COMM_WORLD);
  /// A part of `whole`: the ranks with the same `number`, in the same order. Collective over
  /// `whole`, which must outlive the part. Every rank must create the same number of parts, since
  /// each uses a lane of the watchdog of `whole`. So errors name ranks of `whole`, and ranks that
  /// wait indirectly for a missing rank name it as well. With `own_lanes`, whose numbers may then
  /// differ between parts, errors name no rank of another part.
  MpiWorld(MpiWorld& whole, int number, bool own_lanes = false);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] int local_rank() const override { return local_rank_; }
  [[nodiscard]] int local_size() const override { return local_size_; }
  [[nodiscard]] const std::string& host() const override { return host_; }
  [[nodiscard]] int rank_of_run() const override { return watchdog_->rank(); }

  void barrier() override;
  void sum(std::span<std::int64_t> values) override;
  void max(std::span<std::int64_t> values) override;
  std::vector<double> gather_all(std::span<const double> values) override;
  std::vector<std::string> gather_all(const std::string& text) override;
  std::vector<std::string> gather(const std::string& text) override;
  std::string broadcast(std::string bytes, int root) override;
  void exchange(const std::string& mine, int to, std::string& theirs, int from) override;
  void expect_no_loss() override;
  [[noreturn]] void abort(ExitCode code) noexcept override;

  void set_deadline(double deadline_s) override { watchdog_->set_deadline(deadline_s); }
  [[nodiscard]] double deadline_s() const override { return watchdog_->deadline_s(); }

  [[nodiscard]] MPI_Comm base() const { return base_; }
  /// The control plane's communicator; transports duplicate it.
  [[nodiscard]] MPI_Comm comm() const { return comm_.get(); }
  /// Transports register their collectives with it as well.
  [[nodiscard]] Watchdog& watchdog() { return *watchdog_; }
  /// The part of this world's lanes (Watchdog::add()).
  [[nodiscard]] int lane_part() const { return lane_part_; }
  /// Waits for the control plane's collectives.
  [[nodiscard]] Progress& progress() { return *progress_; }

 private:
  void begin_work() override { watchdog_->begin_work(); }
  void end_work() override { watchdog_->end_work(); }
  void find_ranks();
  void reduce(std::span<std::int64_t> values, MPI_Op op, const char* what);
  std::vector<double> gather_numbers(std::span<const double> values);
  /// Fills lengths_ and starts_ for concatenated texts; returns their total length.
  std::size_t lay_out(const std::string& mine);
  [[nodiscard]] std::vector<std::string> texts_at(const char* at) const;
  /// Inside the current collective: sends the bytes of `mine` to one rank and receives those of
  /// `theirs` from another.
  void swap(std::span<const char> mine, int to, std::span<char> theirs, int from);
  /// Memory for `elements` elements. MPI reads and writes no other memory, because after a timeout
  /// a collective is still active, and may receive a late rank's message.
  template <class T>
  T* buffer(std::size_t elements) {
    buffer_.resize(std::max(buffer_.size(), (elements * sizeof(T) + 7) / 8));
    return reinterpret_cast<T*>(buffer_.data());
  }

  MPI_Comm base_ = MPI_COMM_NULL;  // null in a part
  OwnedComm comm_;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::string host_;
  std::vector<std::uint64_t> buffer_;
  std::vector<int> lengths_, starts_;
  std::unique_ptr<Watchdog> own_watchdog_;  // null in a part
  Watchdog* watchdog_ = nullptr;
  int lane_part_ = 0;
  std::unique_ptr<Progress> progress_;
};

}  // namespace trireme::comm
