// SPDX-License-Identifier: Apache-2.0
// The plan of a deck for a number of ranks: the layout::Plan that a run would build, with the bytes
// that each rank holds and sends. Arithmetic only, without MPI or a device.
//
// `run.precision: auto` is decided by the hardware of the run, so the plan has the bytes of both
// precisions. `run.device: auto` is planned as a run on this machine would decide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "layout/budget.hpp"
#include "layout/plan.hpp"

#include "nn/activations.hpp"

#include "comm/config.hpp"

#include "optim/groups.hpp"
#include "optim/matrices.hpp"
#include "session/rank_memory.hpp"

#include "deck/deck.hpp"
#include "plan/schedule_chart.hpp"

namespace trireme::plan {

struct DeckPlan {
  layout::Plan plan;
  layout::Shard shard = layout::Shard::optimizer;
  std::vector<DType> dtypes = {};                    ///< of the parameters, one or both
  std::vector<layout::Budget> budgets = {};          ///< one per dtype
  std::vector<nn::ActivationPlan> activations = {};  ///< one per dtype
  device::Kind device = device::Kind::cpu;
  std::vector<std::int64_t> workspaces = {};  ///< one per dtype: of a GPU's libraries; 0 on a CPU
  std::vector<std::int64_t> graphs = {};      ///< one per dtype: of captured graphs, estimated

  /// What the host that sends most sends to others per step; known for CPUs only.
  struct HostTraffic {
    std::int64_t gradient_bytes = 0, parameter_bytes = 0;
  };
  layout::StateSlots slots;  ///< of the optimizer, as in the budgets
  optim::Groups groups;
  int hosts = 1;
  comm::Transport transport{};                     ///< inside a replica; auto resolved
  std::vector<HostTraffic> host_traffic = {};      ///< one per dtype
  std::string bucket_text = {};                    ///< how the buckets were chosen
  std::int64_t reductions_per_step = 1;            ///< of every bucket
  ScheduleTable schedule = {};                     ///< of rate, decay, momentum and batch
  std::optional<optim::MatrixWork> matrices = {};  ///< of an optimizer that needs whole ones
  std::int64_t host_matrix_bytes = 0;  ///< sent to others by the host that sends most of them
  std::vector<model::RecomputeChoice> recompute = {};  ///< one per dtype

  /// The memory with one choice of parallel.shard. Filled in by plan_with_choices() only.
  struct Sharding {
    layout::Shard shard{};
    std::vector<layout::Budget> budgets;  ///< one per dtype; empty: not possible with this deck
  };
  std::vector<Sharding> shardings = {};

  [[nodiscard]] bool sharded() const { return shard != layout::Shard::none; }
};

/// For consecutive ranks on `hosts` hosts. Requires: check() accepts the deck for `ranks`, except
/// for its batch; hosts <= ranks.
DeckPlan plan_of(const deck::Deck& deck, int ranks, int hosts = 1);
/// The same with `shardings`.
DeckPlan plan_with_choices(const deck::Deck& deck, int ranks, int hosts = 1);

/// All bytes that one rank holds, with parameters in plan.dtypes[dtype].
std::int64_t whole_bytes(const DeckPlan& plan, std::size_t dtype);

/// Throws UserError if the deck's limit for model.recompute is too small in all of plan.dtypes.
void expect_room(const deck::Deck& deck, const DeckPlan& plan);
/// The result of such a limit, one line per dtype; empty if the deck sets no limit.
std::string recompute_text(const deck::Deck& deck, const DeckPlan& plan);

}  // namespace trireme::plan
