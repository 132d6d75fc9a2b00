// SPDX-License-Identifier: Apache-2.0
// The control plane: the ranks, their hosts, and the small blocking exchanges of a run (deck bytes,
// losses, stop flags). Gradients and parameters are sent by Communicator, on streams.
//
// 1. Every member must be called by all ranks in the same order, from the host's main thread.
// 2. `make_self_world()` is a complete world of one rank that needs no MPI.
// 3. The MPI world has its own duplicate of MPI_COMM_WORLD with MPI_ERRORS_RETURN; a failing call
//    is a CommError with the statement and MPI's own message.
// 4. abort() ends every rank of the job at once. A rank that fails alone calls it, so that the
//    others do not wait forever.
// 5. No rank waits forever. Without progress for the deadline, a member throws a CommError that
//    names the silent or late ranks (comm/control/watchdog.hpp). A rank that works for long outside
//    of MPI, on files for example, holds an AtWork object during this time, and the others wait for
//    it while it is alive; together() and on_first_rank() do so. MPI waits without a deadline in
//    its start and end, and when it splits communicators (after a barrier).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

#include "comm/config.hpp"

namespace trireme::comm {

/// A rank has ended, and MPI lets the others continue (comm/control/mpi_comm.hpp).
class LostRank : public CommError {
 public:
  using CommError::CommError;
};

class World {
 public:
  virtual ~World() = default;

  /// Set by the user of the world: whether the other ranks continue after the loss of a rank.
  bool continues_after_loss = false;
  /// The ranks that were lost when this world was made, "rank 2 on north"; empty if none was.
  std::string lost;
  /// local_rank() at the start: after a loss a rank keeps its GPU, and none gets that of a lost one.
  int local_rank_at_start = 0;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Index among the ranks of this host, and their number.
  [[nodiscard]] virtual int local_rank() const = 0;
  [[nodiscard]] virtual int local_size() const = 0;
  [[nodiscard]] virtual const std::string& host() const = 0;
  /// The rank that messages print: in a part of a world, the rank in the whole one.
  [[nodiscard]] virtual int rank_of_run() const { return rank(); }

  virtual void barrier() = 0;
  /// In place, element by element. Sums of integers do not depend on the order of additions.
  virtual void sum(std::span<std::int64_t> values) = 0;
  virtual void max(std::span<std::int64_t> values) = 0;
  /// Every rank's `values` (equal lengths), in rank order.
  virtual std::vector<double> gather_all(std::span<const double> values) = 0;
  /// Every rank's text, in rank order, on every rank.
  virtual std::vector<std::string> gather_all(const std::string& text) = 0;
  /// Every rank's text, in rank order, on the first rank; nothing on the others.
  virtual std::vector<std::string> gather(const std::string& text) {
    auto all = gather_all(text);
    return rank() == 0 ? std::move(all) : std::vector<std::string>();
  }
  /// Root's bytes on every rank.
  virtual std::string broadcast(std::string bytes, int root) = 0;
  /// Sends `mine` to rank `to`, and fills `theirs` with what rank `from` sends to this rank.
  virtual void exchange(const std::string& mine, int /*to*/, std::string& theirs, int from) {
    theirs = std::move(gather_all(mine).at(static_cast<std::size_t>(from)));
  }
  /// Throws LostRank if this rank knows of a loss: received data may then be undefined.
  virtual void expect_no_loss() {}
  [[noreturn]] virtual void abort(ExitCode code) noexcept = 0;

  /// The deadline, in seconds, of this world and of the communicators created in it.
  virtual void set_deadline(double /*deadline_s*/) {}
  [[nodiscard]] virtual double deadline_s() const { return default_deadline_s; }

  /// While one exists, this rank is busy outside of all collectives, and the others wait. Nests.
  class AtWork {
   public:
    explicit AtWork(World& world) : world_(world) { world_.begin_work(); }
    ~AtWork() { world_.end_work(); }
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;

   private:
    World& world_;
  };

 private:
  virtual void begin_work() {}
  virtual void end_work() {}
};

std::unique_ptr<World> make_self_world();

/// The elementwise maximum of `values` (equal lengths) over all ranks, on every rank. Collective.
std::vector<double> largest_of_ranks(World& world, std::span<const double> values);

/// The sums over all ranks modulo 2^64, as hashes of elements add up. Collective.
std::vector<std::uint64_t> sums_modulo(World& world, std::span<const std::uint64_t> values);

/// MPI_Init_thread(MULTIPLE) in the constructor, MPI_Finalize in the destructor. Create one per
/// process, first in main. Throws CommError when MPI does not support the thread level.
class MpiScope {
 public:
  MpiScope(int& argc, char**& argv);
  ~MpiScope();
  MpiScope(const MpiScope&) = delete;
  MpiScope& operator=(const MpiScope&) = delete;
};

/// Requires an initialized MPI (an MpiScope, or a test's main).
std::unique_ptr<World> make_mpi_world();

/// Why ranks cannot continue after a loss, and what to do; empty: they can. It asks the MPI that
/// runs, and before its start looks at the one that the program was built with.
std::string why_losses_end_all_ranks();

/// Replaces `world` by one of the ranks that are left, and returns true, if any rank calls it with
/// `lost`. Nothing may use the old world any more. Collective over the ranks that are left.
bool replace_after_loss(std::unique_ptr<World>& world, bool lost);

/// "Open MPI v4.1.4 …", as the library reports it.
std::string mpi_version();

}  // namespace trireme::comm
