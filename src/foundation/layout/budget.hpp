// SPDX-License-Identifier: Apache-2.0
// The cost of a plan: the bucket table, the bytes that each rank holds, and the bytes that it sends
// per step. The numbers are exact integers computed from the plan object that the engine runs on,
// so they can be printed for any number of ranks without MPI or a device and compared with what a
// run allocates.
//
// Shards are equal, so every rank holds and sends the same number of bytes, with three exceptions:
// Muon's matrices, state slots that matrices do not have, and a replica's part of a checkpoint. For
// these the numbers are the maximum over the ranks.
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
  int num_padding_only_ranks = 0;  ///< ranks that own only padding of the bucket
};

struct Budget {
  std::vector<BucketRow> buckets;

  // Bytes that one rank holds.
  /// fp32 gradients, of a few buckets if gradients are sharded (Ring); also the rounded copy if
  /// they are sent as bf16, the partial sums of a tree, and the sums of micro-steps. What
  /// compression needs is added by the caller.
  std::int64_t gradient_bytes = 0;
  /// Whole parameters. With Shard::parameters those of a few buckets and the rank's shards, unless
  /// whole parameters are kept after forward (residency.hpp).
  std::int64_t parameter_bytes = 0;
  /// State of the optimizer, by slot. The master slot is 0 in fp32 runs, where the parameters are
  /// the masters.
  std::vector<std::int64_t> state_bytes;
  /// Whole matrices that this rank owns for Muon, and scratch.
  std::int64_t matrix_bytes = 0;
  std::int64_t snapshot_bytes = 0;  ///< state copied for a checkpoint; see snapshot_bytes()
  std::int64_t copies_bytes = 0;    ///< state copies, to continue after the loss of a rank

  /// Memory of the other ranks of its host that a rank reads through shared memory; see
  /// peer_bytes(). The host holds it once, but every process's resident memory counts it.
  std::int64_t peer_bytes = 0;

  // Bytes that one rank sends per step, and receives: every element that another rank owns once per
  // collective, which is the minimum for a reduce-scatter or an all-gather. Source: Chan et al.,
  // "Collective communication: theory, practice, and experience", 2007, table 1.
  /// Reduce-scatters, or all-reduces if not sharded. With replicas also an all-reduce of the shard;
  /// if sums have a guaranteed order, an all-reduce of the whole bucket over all ranks instead.
  std::int64_t gradient_wire_bytes = 0;
  std::int64_t parameter_wire_bytes = 0;  ///< all-gather; not sharded: 0
  std::int64_t matrix_wire_bytes = 0;     ///< both directions, maximum over the ranks

  [[nodiscard]] std::int64_t all_state_bytes() const {
    return std::accumulate(state_bytes.begin(), state_bytes.end(), std::int64_t{0});
  }
  /// Held in host memory, even if the device is a GPU.
  [[nodiscard]] std::int64_t host_bytes() const { return snapshot_bytes + copies_bytes; }
  [[nodiscard]] std::int64_t held_bytes() const {
    return gradient_bytes + parameter_bytes + all_state_bytes() + matrix_bytes + host_bytes();
  }
  [[nodiscard]] std::int64_t wire_bytes() const {
    return gradient_wire_bytes + parameter_wire_bytes + matrix_wire_bytes;
  }
};

struct BudgetOptions {
  DType parameter_dtype = DType::f32;
  Shard shard = default_shard;
  DType wire_dtype = DType::f32;  ///< type in which gradients are sent
  int partial_sums = 0;           ///< additional gradient arenas for the sums of a rank's leaves
  bool snapshot = false;          ///< checkpoints are written from a copy
  int copies = 0;                 ///< additional copies of what a rank writes to a checkpoint
  /// Number of micro-steps per step, if each is reduced and added to separate memory; none: a step
  /// is reduced once, in place. Requires: a value if gradients are sharded.
  std::optional<std::int64_t> micro_step_reductions{};
  GatherOptions gathers{};  ///< with Shard::parameters
  /// Gradients are added in a guaranteed order; matters only with replicas.
  bool ordered = false;
  /// By bucket, the bytes that a rank sends in a reduction, if gradients are compressed; then
  /// wire_dtype is fp32.
  std::vector<std::int64_t> compressed_bytes{};
  /// Compressed gradients are added by collectives, not sent to the owners of shards.
  bool sums_compressed = false;
  /// Updates per step that each replica makes alone. If more than one, the weights are then averaged
  /// over the replicas.
  std::int64_t local_steps = 1;
  std::int64_t averaged_bytes = 0;  ///< bytes that a rank sends per step for the averaging

  [[nodiscard]] bool sharded() const { return shard != Shard::none; }
  /// Elements of all gathers of a step, padding included.
  [[nodiscard]] std::int64_t gathered_elements(const Plan& plan) const;
};

/// int64 elements of the norm and the loss of a step, which the ranks add: the words of two
/// order-free sums (ops/optimizer/order_free_words.hpp), padded to a multiple of the ranks.
inline constexpr std::int64_t words_of_step_sums = 142;
constexpr std::int64_t step_sum_elements(int ranks) {
  return rounded_up(words_of_step_sums, ranks);
}

/// Elements that a rank sends in one reduction of a bucket with shards of `shard_elements`.
std::int64_t reduced_elements(const Plan& plan,
                              const BudgetOptions& options,
                              std::int64_t shard_elements);

/// Bytes of the copy of the optimizer's state from which a rank writes a checkpoint: the shards
/// that it owns, sharded or not; with replicas, only of the buckets whose primary replica it
/// belongs to, except of slots that each replica has. Maximum over the ranks.
std::int64_t snapshot_bytes(const Plan& plan, const StateSlots& slots);

/// Bytes that a rank reads from the memory of the `host_ranks` - 1 other ranks of its replica on
/// its host; the shards of all ranks are distributed evenly over them. From every other rank it
/// reads the gradient shards that it adds, the parameter shards that the other rank has (gradients
/// if not sharded), and its part of the step's sums. With replicas and a guaranteed order, sums use
/// messages, so only parameters count. Buckets that share a slot are read from the same pages if
/// their shards have the same addresses, which differs among the ranks of a host. Maximum over the
/// ranks, for hosts with the same number of consecutive ranks.
std::int64_t peer_bytes(const Plan& plan, const BudgetOptions& options, int host_ranks);

/// All fields except peer_bytes, matrix_bytes and matrix_wire_bytes.
Budget budget_of(const Plan& plan, const StateSlots& slots, const BudgetOptions& options);

}  // namespace trireme::layout
