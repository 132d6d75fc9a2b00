// SPDX-License-Identifier: Apache-2.0
// What a plan costs: the bucket table, the bytes that each rank holds, and the bytes that it sends
// per step. The numbers are those of the plan object that the engine runs on, in exact integers, so
// they can be printed for any rank count without MPI or a device and compared with what a run
// allocates.
//
// Every rank holds and sends the same number of bytes, because shards are equal; whole matrices,
// slots that these do not have, and what a replica of several writes of a checkpoint are not, and
// there it is what the rank holds or sends that has most.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "base/dtype.hpp"
#include "base/index.hpp"
#include "base/round_up.hpp"
#include "layout/plan.hpp"
#include "layout/residency.hpp"
#include "layout/state.hpp"

namespace trireme::layout {

/// One line of the bucket table, in elements unless stated otherwise.
struct BucketRow {
  BucketIndex bucket{};
  ParameterIndex first{}, last{};  ///< in layout order
  std::int64_t num_parameters = 0;
  std::int64_t begin = 0;
  std::int64_t elements = 0;        ///< padding included
  std::int64_t padding = 0;         ///< between parameters and at the end
  std::int64_t shard_elements = 0;  ///< rank r owns [begin + r·shard, begin + (r+1)·shard)
  /// Largest power of two that divides the address of every rank's shard, counted from the start of
  /// the arena, which itself is aligned to 128 bytes or more.
  std::int64_t gradient_alignment_bytes = 0;
  std::int64_t parameter_alignment_bytes = 0;
  int num_padding_only_ranks = 0;  ///< ranks that own no parameter element of it
};

struct Budget {
  std::vector<BucketRow> buckets;

  // Bytes that one rank holds.
  /// fp32; also the copy that travels where it is not fp32, the partial sums of a tree, and the
  /// sums of micro-steps. Where gradients are sharded of a few buckets (ring.hpp) and the sums.
  std::int64_t gradient_bytes = 0;
  /// Whole ones; with Shard::parameters of a few buckets, and the rank's shards, unless whole ones
  /// are kept after forward (residency.hpp).
  std::int64_t parameter_bytes = 0;
  /// The optimizer's, by slot. That of the masters is 0 in fp32 runs, where the parameters are the
  /// masters.
  std::vector<std::int64_t> state_bytes;
  /// Of an optimizer of whole matrices: those that come to this rank, and scratch; filled in by
  /// the caller that has the optimizer, as is matrix_wire_bytes.
  std::int64_t matrix_bytes = 0;
  std::int64_t snapshot_bytes = 0;  ///< what is written while the run goes on; see below

  /// Memory of the other ranks of its host that a rank reads, where shared memory is the transport;
  /// see peer_bytes(). The host holds it once, but every process's resident memory counts it.
  std::int64_t peer_bytes = 0;

  // Bytes that one rank sends per step, and receives: every element that another rank owns once per
  // collective, which is the least that a reduce-scatter or an all-gather can do. Source: Chan et
  // al., "Collective communication: theory, practice, and experience", 2007, table 1.
  /// Reduce-scatters; not sharded: all-reduces; with replicas an all-reduce of the shard as well,
  /// and where sums have a promised order one of the whole bucket over all ranks instead.
  std::int64_t gradient_wire_bytes = 0;
  std::int64_t parameter_wire_bytes = 0;  ///< all-gather; not sharded: 0
  std::int64_t matrix_wire_bytes = 0;     ///< there and back, by the rank that sends most of them

  [[nodiscard]] std::int64_t all_state_bytes() const {
    return std::accumulate(state_bytes.begin(), state_bytes.end(), std::int64_t{0});
  }
  [[nodiscard]] std::int64_t held_bytes() const {
    return gradient_bytes + parameter_bytes + all_state_bytes() + matrix_bytes + snapshot_bytes;
  }
  [[nodiscard]] std::int64_t wire_bytes() const {
    return gradient_wire_bytes + parameter_wire_bytes + matrix_wire_bytes;
  }
};

/// What bytes depend on beside the plan and the slots. Gradients are fp32.
struct BudgetOptions {
  DType parameter_dtype = DType::f32;
  Shard shard = default_shard;
  DType wire_dtype = DType::f32;  ///< what gradients travel as
  int partial_sums = 0;           ///< further gradient arenas, to add up a rank's leaves
  bool snapshot = false;          ///< checkpoints are written from a copy
  /// How many micro-steps of a step are reduced by themselves and added up in memory of their own;
  /// none: a step is reduced once, where gradients are. Requires: some where gradients are sharded.
  std::optional<std::int64_t> micro_step_reductions{};
  GatherOptions gathers{};  ///< with Shard::parameters
  /// Gradients are added up in a promised order; matters to replicas only.
  bool ordered = false;

  [[nodiscard]] bool sharded() const { return shard != Shard::none; }
  /// Of the buckets that a step gathers, each time that it does, padding included.
  [[nodiscard]] std::int64_t gathered_elements(const Plan& plan) const;
};

/// Elements, int64, in which the ranks add up the norm and the loss of a step: the words of two
/// order-free sums (ops/optimizer/order_free_words.hpp), and zeros until each rank has as many.
inline constexpr std::int64_t words_of_step_sums = 142;
constexpr std::int64_t step_sum_elements(int all_ranks) {
  return rounded_up(words_of_step_sums, all_ranks);
}

/// Elements that a rank sends in one reduction of a bucket with shards of so many elements.
std::int64_t reduced_elements(const Plan& plan,
                              const BudgetOptions& options,
                              std::int64_t shard_elements);

/// The copy of the optimizer's state from which one rank writes a checkpoint: what it owns, sharded
/// or not; with replicas of the buckets that its replica keeps. The most of any rank.
std::int64_t snapshot_bytes(const Plan& plan, const StateSlots& slots);

/// What a rank reads of the `host_ranks` - 1 others of its replica on its host, over which the
/// shards of all ranks are spread evenly. Sharded: of every other rank's gradients the shards that
/// this rank adds up, and of its parameters those that it has; not sharded: both of the gradients.
/// And so of the step's sums. With replicas and sums in a promised order, which go by messages, of
/// parameters only. Buckets that take turns in one piece of memory are read from the same pages, as
/// far as their shards lie at the same place, which differs among the ranks of a host; what is
/// counted is what that rank reads that reads most, where hosts have equally many ranks in a row.
std::int64_t peer_bytes(const Plan& plan, const BudgetOptions& options, int host_ranks);

/// All but peer_bytes and what is of matrices.
Budget budget_of(const Plan& plan, const StateSlots& slots, const BudgetOptions& options);

}  // namespace trireme::layout
