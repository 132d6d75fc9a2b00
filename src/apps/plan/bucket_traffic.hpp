// SPDX-License-Identifier: Apache-2.0
// Computes the collectives of a step, bucket by bucket, and their cost over the links of a machine
// file. They are those of the engine (reduce/engine.hpp).
//
// With replicas (parallel.replicate) a reduction has two parts, as in a run
// (comm/transport/replicated_communicator.cpp): a reduce-scatter inside each replica, at the same
// time in all of them, and then an all-reduce of the shard by messages among the ranks that own it
// in each replica. If the order of sums is guaranteed, it is one all-reduce of the whole bucket by
// messages among all ranks. Gathers stay inside a replica.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "layout/budget.hpp"
#include "layout/plan.hpp"

#include "comm/collective/hosts.hpp"
#include "comm/config.hpp"

#include "session/job.hpp"

#include "plan/link_cost.hpp"
#include "plan/step.hpp"

namespace trireme::plan {

/// The wires inside a replica of the state and, if there are several, across replicas.
struct Wires {
  Wire inside;
  std::optional<Wire> across;
};

/// The reduction whose links are used for a deck: `sum` with local steps, because averaging the
/// replicas is separate from reducing the gradients.
comm::Reduction reduction_of(const session::Sections& config);

/// `transport`: inside each replica, never auto. `hosts`: of all ranks of the run. Requires:
/// replicas of consecutive ranks, with the same number of ranks in each.
Wires wires_of(const comm::Hosts& hosts,
               int replicas,
               comm::Transport transport,
               comm::Reduction reduction);

class BucketTraffic {
 public:
  /// `machine` and `plan` outlive it.
  BucketTraffic(const Machine& machine,
                const layout::Plan& plan,
                const layout::BudgetOptions& options,
                const Wires& wires);

  /// What was not measured; empty if nothing is missing.
  [[nodiscard]] std::string missing() const;
  /// Whether something was measured on other ranks, hosts or groups.
  [[nodiscard]] bool extrapolated() const;

  /// Fills in the communication: seconds and bytes of each bucket, both exchanges, and which
  /// collectives there are. Requires: compute is filled in (compute_cost.hpp); nothing is missing.
  void fill(StepModel& model) const;
  /// Seconds to average the replicas after local steps. Requires: nothing is missing.
  [[nodiscard]] double average_seconds() const;
  /// Seconds of a gather inside a replica. Requires: nothing is missing.
  [[nodiscard]] double gather_seconds(Numbers dtype, std::int64_t bytes) const {
    return inside_.seconds(Operation::all_gather, dtype, bytes);
  }
  /// LinkCost::copy_s() between the ranks of the run.
  [[nodiscard]] std::optional<double> copy_s(std::int64_t bytes, std::int64_t ranks_on_host) const {
    return (across_ ? *across_ : inside_).copy_s(bytes, ranks_on_host);
  }

 private:
  [[nodiscard]] double reduce_seconds(std::size_t bucket) const;

  const layout::Plan& plan_;
  const layout::BudgetOptions options_;
  const double ranks_that_send_;    // ranks of a host that send compressed data to others
  LinkCost inside_;                 // inside a replica
  std::optional<LinkCost> across_;  // replicas, or all ranks with a guaranteed order
};

}  // namespace trireme::plan
