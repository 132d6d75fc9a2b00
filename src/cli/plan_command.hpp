// SPDX-License-Identifier: Apache-2.0
// `trireme plan`: the layout that a deck gets on a number of ranks, from the very Plan object that
// a run would build. Runs anywhere, without MPI or a device.
//
// `run.precision: auto` is decided by the hardware of the run; the plan then shows what both
// precisions would hold and send. `run.device: auto` is planned as a run on this machine would
// decide.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"

#include "layout/budget.hpp"
#include "layout/plan.hpp"

#include "nn/activations.hpp"

#include "optim/groups.hpp"
#include "optim/matrices.hpp"

#include "deck/deck.hpp"
#include "report/schedule_chart.hpp"

namespace trireme::cli {

struct DeckPlan {
  layout::Plan plan;
  layout::Shard shard = layout::Shard::optimizer;
  std::vector<DType> dtypes;                    ///< of the parameters, one or both
  std::vector<layout::Budget> budgets;          ///< one per dtype
  std::vector<nn::ActivationPlan> activations;  ///< one per dtype
  device::Kind device = device::Kind::cpu;
  std::vector<std::int64_t> workspaces;  ///< one per dtype: of a GPU's libraries; 0 on a CPU

  /// What the host that sends most sends to others per step; known for CPUs only.
  struct HostTraffic {
    std::int64_t gradient_bytes = 0, parameter_bytes = 0;
  };
  layout::StateSlots slots;  ///< of the optimizer, as in the budgets
  optim::Groups groups;
  int hosts = 1;
  std::string transport;                           ///< as in the deck, auto resolved
  std::vector<HostTraffic> host_traffic;           ///< one per dtype
  std::string bucket_text;                         ///< how the buckets came about
  std::int64_t reductions_per_step = 1;            ///< of every bucket
  report::ScheduleTable schedule = {};             ///< of rate, decay, momentum and batch
  std::optional<optim::MatrixWork> matrices = {};  ///< of an optimizer that needs whole ones
  std::int64_t host_matrix_bytes = 0;  ///< sent to others by the host that sends most of them

  /// What the deck would take with this parallel.shard; one of them is the deck's own.
  struct Sharding {
    layout::Shard shard{};
    std::vector<layout::Budget> budgets;  ///< one per dtype; none: the deck does not go with it
  };
  std::vector<Sharding> shardings = {};

  [[nodiscard]] bool sharded() const { return shard != layout::Shard::none; }
};

/// For consecutive ranks on `hosts` hosts. Requires: a deck that check() found good for `ranks`,
/// its batch aside; hosts <= ranks.
DeckPlan plan_of(const deck::Deck& deck, int ranks, int hosts = 1);

/// All that one rank holds, with parameters in plan.dtypes[dtype].
std::int64_t whole_bytes(const DeckPlan& plan, std::size_t dtype);

/// The bucket table and the bytes per rank, for people.
std::string plan_text(const DeckPlan& plan);
/// The same numbers, and more digits of them, for programs. `scaling`: as scaling_json() gives it;
/// empty: none.
std::string plan_json(const DeckPlan& plan, const std::string& scaling = "");

/// Reads and checks a deck for a plan: all but whether the batch can be split over the ranks.
deck::Deck parse_for_plan(const std::string& deck_path,
                          const std::vector<std::string>& overrides,
                          deck::Circumstances circumstances);

struct PlanOutput {
  std::string json_path;                ///< of a new file for plan_json(); empty: none
  bool schedule = false;                ///< schedule_text() as well
  std::string machine_path = {};        ///< of a machine file for scaling_text(); empty: none
  std::vector<int> scaling_ranks = {};  ///< for it; the first is that of the plan
};

/// `trireme plan`: reads, checks all but the batch, plans and predicts; says so when the batch
/// cannot be split over the ranks. Throws UserError, also when that file exists, and StorageError.
std::string plan_command(const std::string& deck_path,
                         const std::vector<std::string>& overrides,
                         const deck::Circumstances& circumstances,
                         const PlanOutput& output);

}  // namespace trireme::cli
