// SPDX-License-Identifier: Apache-2.0
// The optimizer of the shards that this rank owns (ZeRO-1), with clipping by the norm of the whole
// gradient. A Rule (rule.hpp) defines the update of an element; the parameter's group (groups.hpp)
// gives its learning rate and weight decay.
//
// A step enqueues: wait for each bucket's reduction and add the squares of the owned gradients; add
// these sums, and those of the loss, over all ranks; compute the clip factor; update the owned
// pieces bucket by bucket in forward order, and report each bucket to the engine, which gathers it
// while the next buckets are updated; copy norm and loss to the host, which reads them later.
//
// 1. The state covers owned elements only. It consists of the rule's slots, the first of which is
//    the fp32 master (in fp32 runs the parameter itself is the master, without further memory).
//    Hidden matrices of Muon have no second moment (layout/state.hpp). Without shards, every rank
//    holds and updates everything, with the same bits.
// 2. The gradient norm is an order-free sum (ops/optimizer/order_free_sum.hpp) over parameter
//    elements, without padding. So its bits depend on the summed gradients only. With replicas, the
//    squares of a bucket are added on its primary replica only.
// 3. Muon's hidden matrices are sent to their owners before any update; those of a bucket are
//    orthogonal, in the memory of their gradients, before its update (matrices.hpp). On a CPU a
//    step whose norm is not finite skips transfers and products.
// 4. Padding is never written; it stays zero in parameters and state.
// 5. A step whose norm is not finite writes nothing; the device decides this, and the gathers still
//    run. result() of this step throws the same UserError on all ranks (the usual cause is in the
//    deck: learning rate, precision), or with on_non_finite: skip returns the element's location. A
//    skipped step counts in the schedule and in the bias correction, but changes no moment.
// 6. The result of a step must be read before the step after the next one begins: the host may be
//    one step ahead, never two.
// 7. With local steps (local_steps.hpp) replicas are independent between averages: sums, norms and
//    errors are those of one replica.
//
// Threads: all members are called from the host thread that owns the compute stream. step() and
// result() are collective; step() does not wait for compute, result() waits until the step is over.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/round_up.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"
#include "layout/state.hpp"

#include "ops/optimizer/order_free_sum.hpp"
#include "ops/optimizer/reductions.hpp"

#include "comm/communicator.hpp"
#include "comm/control/world.hpp"
#include "reduce/engine.hpp"

#include "optim/config.hpp"
#include "optim/groups.hpp"
#include "optim/layer_norms.hpp"
#include "optim/local_steps.hpp"
#include "optim/matrices.hpp"
#include "optim/rule.hpp"

namespace trireme::optim {

/// State of one contiguous part of one parameter, for initialization and checkpoints.
struct StatePiece {
  ParameterIndex parameter{};
  std::int64_t parameter_begin = 0;  ///< first element within the parameter
  std::vector<View> slots;  ///< as Optimizer::slots(); the master is fp32, in fp32 runs a view
                            ///< of the parameter itself; empty if the parameter has no such slot

  [[nodiscard]] const View& master() const { return slots.front(); }
  [[nodiscard]] std::int64_t elements() const { return slots.front().elements; }
};

struct StepResult {
  double grad_norm = 0;  ///< L2 norm of the scaled gradient, before clipping
  double loss_sum = 0;   ///< over all ranks; with local steps over those of the replica
  double learning_rate = 0;
  double sums_begin = 0, sums_waited = 0;  ///< the all-reduce of the sums: steady clock, s; s
  struct Span {
    double begin = 0, seconds = 0;  ///< steady clock, s; s
  };
  /// Times in which compute worked on Muon's matrices or waited for them: one for all directions,
  /// one per round (matrices.hpp). Empty without matrices. Valid until the next result().
  std::span<const Span> matrices;
  /// For a skipped step: where the gradient was not finite. Else empty.
  std::string not_finite;
};

class Optimizer {
 public:
  /// The engine, its communicator, the world, the device and the compute stream must outlive the
  /// optimizer. Collective, because it allocates from the communicator. The state starts as zero;
  /// write the masters and call publish_parameters() before the first step. `seed` is the run's.
  Optimizer(const OptimizerConfig& config,
            reduce::Engine& engine,
            comm::Communicator& communicator,
            comm::World& world,
            device::Device& device,
            device::Stream& compute,
            std::uint64_t seed);

  /// Makes update number `update`, counted from 1, with gradients times `gradient_scale` (1 / (ranks
  /// · micro-steps)). Each step of the run has optimizer.outer.local_steps updates, by default one.
  /// `losses`, if any, is this rank's term of StepResult::loss_sum; `norms`, if any, are measured.
  /// Requires: every gradient was reported ready to the engine; result() was called for all updates
  /// except the last.
  void step(std::int64_t update,
            std::int64_t total_steps,
            double gradient_scale,
            ops::StreamSum* losses = nullptr,
            LayerNorms* norms = nullptr);
  /// With local steps, call after the last update of a step: averages the replicas, and publishes
  /// the parameters. `weight`: this replica's part of the sequences.
  void end_local_steps(double weight);
  /// Whether the device has completed the update, so that result() would not wait.
  [[nodiscard]] bool has_result(std::int64_t update) const;
  /// Result of the last update or the one before. If the norm is not finite and the deck allows the
  /// step to be skipped, `not_finite` names the parameter and the rank that found it; otherwise
  /// throws UserError with these names, on all ranks.
  StepResult result(std::int64_t update);
  /// Number of consecutive steps, ending with `step`, that had a skipped update. The checkpoint of
  /// that step stores it, and a resumed run passes it to continue_skips().
  [[nodiscard]] std::int64_t skipped_in_a_row(std::int64_t step) const {
    return step == skipped_step_ ? skipped_in_a_row_ : 0;
  }
  void continue_skips(std::int64_t step, std::int64_t in_a_row) {
    skipped_step_ = step;
    skipped_in_a_row_ = in_a_row;
  }

  /// The state that this rank keeps, in layout order. Sharded: every element of every parameter is
  /// in exactly one piece of one rank of each replica. Otherwise each rank has all elements, and
  /// rank r writes to a checkpoint those inside plan().find_pieces(bucket, r).
  [[nodiscard]] std::span<const StatePiece> state() const { return state_; }
  /// Collective. Call after writing the masters: rounds them into parameters and gathers these.
  void publish_parameters();

  [[nodiscard]] const layout::StateSlots& slots() const { return slots_; }
  /// What compression of gradients and local steps keeps between steps; later bits depend on it.
  [[nodiscard]] std::vector<reduce::Carried> carried() const;
  /// Bytes of each slot on this rank, as layout::Budget::state_bytes.
  [[nodiscard]] std::vector<std::int64_t> state_bytes() const;
  /// Memory for whole matrices, in addition to the state; 0 without them.
  [[nodiscard]] std::size_t matrix_bytes() const { return matrices_ ? matrices_->bytes() : 0; }
  /// Memory for the compression of local steps, in addition to the state.
  [[nodiscard]] std::int64_t outer_bytes() const {
    return outer_memory(config_.outer, engine_.plan()).held;
  }
  [[nodiscard]] const Groups& groups() const { return groups_; }

 private:
  struct BucketUpdates {
    std::vector<Update> updates;
    std::vector<layout::Piece> own;  // whose norms this rank adds
    std::vector<ConstView> squared;  // the gradients of `own`
  };

  /// The scalars of a step, computed on the device and copied to the host.
  struct Numbers {
    double squares = 0, losses = 0;  // summed over ranks
    ops::GradientNorm gradient;
  };
  /// A step whose result the host may not have read yet.
  struct PendingResult {
    std::int64_t update = 0, engine_step = 0;
    double learning_rate = 0;
    bool unread = false;
    device::Buffer numbers;    // one Numbers, shared with the host
    device::Buffer locations;  // by bucket: first element of this rank's shard that is not finite
    std::unique_ptr<device::Event> sums_begin, sums_end, over;
    struct Ends {
      std::unique_ptr<device::Event> begin, end;
    };
    std::vector<Ends> matrices;  // as StepResult::matrices
  };

  [[nodiscard]] std::int64_t step_of_update(std::int64_t update) const {
    return divided_up(update, config_.outer.local_steps);
  }
  void find_updates(BucketIndex bucket);
  void find_state(BucketIndex bucket, const std::vector<layout::Piece>& pieces);
  void find_norm(PendingResult& pending,
                 const ops::Clipping& clipping,
                 ops::StreamSum* losses,
                 LayerNorms* norms);
  void update(BucketIndex bucket, LayerNorms* norms);
  void send_numbers(PendingResult& pending);
  [[nodiscard]] bool known_not_finite() const;
  bool send_matrices(PendingResult& pending);
  void finish_matrices(PendingResult& pending, BucketIndex bucket, bool sent);
  std::span<const StepResult::Span> times_of_matrices(const PendingResult& pending);
  [[nodiscard]] View words(std::int64_t sum) const;
  /// True in fp32 runs, whose masters have no memory of their own.
  [[nodiscard]] bool masters_are_parameters() const {
    return engine_.parameter_dtype() == DType::f32;
  }
  [[nodiscard]] Numbers& numbers() const { return *reinterpret_cast<Numbers*>(numbers_.data()); }
  [[nodiscard]] PendingResult& pending_of(std::int64_t update) {
    return pending_[index_of(update)];
  }
  [[nodiscard]] std::size_t index_of(std::int64_t update) const {
    return static_cast<std::size_t>(update) % pending_.size();
  }
  /// Collective; the same on all ranks, or those of the replica with local steps.
  [[nodiscard]] std::string where_not_finite(const PendingResult& pending);
  [[nodiscard]] std::string found_before_reduction(const PendingResult& pending) const;
  [[nodiscard]] std::string found_in_sum(const PendingResult& pending) const;

  const OptimizerConfig config_;
  reduce::Engine& engine_;
  comm::Communicator& communicator_;
  comm::World& world_;
  comm::World& summed_;  // all ranks, or with local steps those of the replica
  device::Stream& compute_;

  const Groups groups_;
  Rule rule_;
  const layout::StateSlots slots_;
  std::optional<Matrices> matrices_;               // if the rule needs them
  std::vector<device::Buffer> memory_;             // by slot; empty for the masters of fp32 runs
  std::vector<std::vector<std::int64_t>> begins_;  // by slot and bucket, in that memory
  std::vector<BucketUpdates> buckets_;
  std::vector<ConstView> shards_;  // by bucket: this rank's share of the gradient, with padding
  std::vector<StatePiece> state_;
  std::optional<LocalSteps> local_steps_;
  ops::StreamSum squares_;
  device::Buffer sums_;  // the words of squares and losses, in memory of the communicator
  std::unique_ptr<comm::Shards> sums_table_;
  device::Buffer numbers_;                      // Numbers of the current step, on the device
  std::array<PendingResult, 2> pending_;        // of even and odd steps
  std::vector<StepResult::Span> matrix_spans_;  // of the last result()
  std::int64_t skipped_step_ = 0, skipped_in_a_row_ = 0;  // the last one, and those up to it
};

}  // namespace trireme::optim
