// SPDX-License-Identifier: Apache-2.0
// Computes the collectives of a step, bucket by bucket, and their cost over the links of a machine
// file. They are those of the engine (reduce/engine.hpp).
//
// With replicas (parallel.replicate) a reduction has two parts, as in a run
// (comm/transport/replicated_communicator.cpp): a reduce-scatter inside each replica, at the same
// time in all of them, and then an all-reduce of the shard by messages among the ranks that own it
// in each replica. If the order of sums is promised, it is one all-reduce of the whole bucket by
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

/// What ranks communicate over inside of a copy of the state and, where there are several, across.
struct Wires {
  Wire inside;
  std::optional<Wire> across;
};

/// The reduction whose links price a deck: `sum` with local steps, whose replicas are averaged apart
/// from the gradients.
comm::Reduction reduction_of(const session::Sections& config);

/// `transport`: inside of each copy, without auto. `hosts`: of all ranks of the run. Requires:
/// replicas of consecutive ranks, equally many in each.
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

  /// What was not measured; empty: all is known.
  [[nodiscard]] std::string missing() const;
  /// Whether something was measured on other ranks, hosts or groups.
  [[nodiscard]] bool extrapolated() const;

  /// Fills in what communicates: of each bucket seconds and bytes, both exchanges, and which
  /// collectives there are. Requires: compute is filled in (compute_cost.hpp); nothing is missing.
  void fill(StepModel& model) const;
  /// Of averaging the state over the replicas after local steps. Requires: nothing is missing.
  [[nodiscard]] double average_seconds() const;
  /// Of a gather inside of a copy. Requires: nothing is missing.
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
  const double ranks_that_send_;    // of a host, what is compressed, to other hosts
  LinkCost inside_;                 // of a copy
  std::optional<LinkCost> across_;  // replicas, or with a promised order everywhere
};

}  // namespace trireme::plan
