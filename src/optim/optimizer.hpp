// SPDX-License-Identifier: Apache-2.0
// An optimizer over the shards that this rank owns (ZeRO-1), with clipping by the norm of the whole
// gradient. What it computes for an element is a Rule's (rule.hpp); with which numbers, its group's
// (groups.hpp).
//
// One step, all of it enqueued: wait for each bucket's reduction and add the squares of what is
// owned; merge the sums of all ranks, and the loss's with them; derive the clip factor; update the
// owned pieces bucket by bucket in forward order, and hand each bucket back to the engine, which
// gathers it while the next ones are updated. The numbers go to the host, to be read later.
//
// 1. The state covers owned elements only: the rule's slots, the first of which is the fp32 master
// (none in fp32 runs, where the parameter itself is the master). Hidden matrices of Muon lack the
// second moment (layout/state.hpp). Not sharded, every rank holds and updates everything, with the
// same bits.
// 2. The gradient norm is a sum without order (ops/optimizer/order_free_sum.hpp) over parameter
// elements, never padding, so its bits depend on the summed gradients only: not on buckets,
// padding, sharding or who owns what. With replicas each bucket's squares are its keeper's.
// 3. Learning rate and weight decay are those of the parameter's group.
// Muon's hidden matrices are brought together before any update, and orthogonalized before that of
// the first bucket that has some (matrices.hpp), in the memory of their gradients; on a CPU not in
// a step that is not finite. So buckets before it, a tied embedding's, are gathered beside the
// products, and not beside the travel, which needs the same wire.
// 4. Padding is never written; it stays zero in parameters and state.
// 5. A step whose norm is not finite writes nothing, which is decided on the device; its gathers
// run. Whoever asks for its result gets the same UserError on all ranks (the usual reason is the
// deck: learning rate, precision), or with on_non_finite: skip the place. A skipped step counts in
// the schedule and in the bias correction, as if its gradient had been zero and the moments kept.
// 6. The result of a step is kept until the step after the next begins, which wants it read: the
// host may be one step ahead, and never two.
//
// Threads: everything from the host thread that owns the compute stream. step() and result() are
// collective; step() does not wait for compute, result() waits until the step is over.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"
#include "layout/plan.hpp"
#include "layout/state.hpp"

#include "comm/communicator.hpp"
#include "comm/control/world.hpp"
#include "ops/optimizer/gradient_norm.hpp"
#include "ops/optimizer/order_free_sum.hpp"

#include "reduce/engine.hpp"

#include "optim/config.hpp"
#include "optim/groups.hpp"
#include "optim/matrices.hpp"
#include "optim/rule.hpp"

namespace trireme::optim {

/// State of one contiguous part of one parameter: what initialization writes and what a checkpoint
/// saves and loads.
struct StatePiece {
  ParameterIndex parameter{};
  std::int64_t parameter_begin = 0;  ///< first element within the parameter
  std::vector<View> slots;  ///< as Optimizer::slots(); the master is fp32, in fp32 runs a view
                            ///< of the parameter itself; empty where there is none

  [[nodiscard]] const View& master() const { return slots.front(); }
  [[nodiscard]] std::int64_t elements() const { return slots.front().elements; }
};

struct StepResult {
  double grad_norm = 0;  ///< L2 norm of the scaled gradient, before clipping
  double loss_sum = 0;   ///< over all ranks
  double learning_rate = 0;
  double sums_begin = 0, sums_waited = 0;  ///< adding up over the ranks: steady clock, s; s
  struct Span {
    double begin = 0, seconds = 0;  ///< steady clock, s; s
  };
  /// Muon's matrices: until they are at their homes; products and the way back. Else 0.
  std::array<Span, 2> matrices{};
  /// Where the gradient was not finite, for a step that was skipped; empty for all others.
  std::string not_finite;
};

class Optimizer {
 public:
  /// The engine, its communicator, the world, the device and the compute stream outlive the
  /// optimizer. Collective, because it allocates from the communicator. The state starts as zero;
  /// write the masters and call publish_parameters() before the first step. `seed` is the run's.
  Optimizer(const OptimizerConfig& config,
            reduce::Engine& engine,
            comm::Communicator& communicator,
            comm::World& world,
            device::Device& device,
            device::Stream& compute,
            std::uint64_t seed);

  /// Takes step number `step`, counted from 1, with gradients times `gradient_scale`
  /// (1 / (ranks · micro-steps)). `losses`, if any, is this rank's part of a sum that is wanted
  /// with the result. Requires: every gradient was reported ready to the engine; the results of all
  /// steps but the last one were asked for.
  void step(std::int64_t step,
            std::int64_t total_steps,
            double gradient_scale,
            ops::StreamSum* losses = nullptr);
  /// Whether the step is over, so that result() would not wait.
  [[nodiscard]] bool has_result(std::int64_t step) const;
  /// Of the last step or the one before. When the norm is not finite, the parameter and the rank
  /// that found it are in `not_finite` of a step that the deck lets be skipped; else throws
  /// UserError with them, on all ranks alike.
  StepResult result(std::int64_t step);

  /// What this rank keeps, in layout order. Sharded: every element of every parameter is in exactly
  /// one piece of one rank of each replica; otherwise each rank has all of them, and the parts of
  /// rank r that it should write to a checkpoint are those inside plan().pieces(bucket, r).
  [[nodiscard]] std::span<const StatePiece> state() const { return state_; }
  /// After the masters were written from outside: rounds them into the parameters and gathers.
  /// Collective.
  void publish_parameters();

  [[nodiscard]] const layout::StateSlots& slots() const { return rule_->slots(); }
  /// Of each slot on this rank, as layout::Budget::state_bytes.
  [[nodiscard]] std::vector<std::int64_t> state_bytes() const;
  /// What whole matrices take beside the state; 0 where there are none.
  [[nodiscard]] std::size_t matrix_bytes() const { return matrices_ ? matrices_->bytes() : 0; }
  [[nodiscard]] const Groups& groups() const { return groups_; }

 private:
  struct BucketUpdates {
    std::vector<Update> updates;
    std::vector<ConstView> squared;  // this rank's share of the norm
  };

  /// What the device computes of a step for itself and for the host.
  struct Numbers {
    double squares = 0, losses = 0;  // summed over ranks
    ops::GradientNorm gradient;
  };
  /// What the host knows of a step that it has not looked at yet.
  struct Late {
    std::int64_t step = 0, engine_step = 0;
    double learning_rate = 0;
    bool unread = false;
    device::Buffer numbers;  // one Numbers, shared with the host
    device::Buffer places;   // by bucket: first element of this rank's shard that is not finite
    std::unique_ptr<device::Event> sums_begin, sums_end, over;
    std::array<std::unique_ptr<device::Event>, 2> matrices_begin, matrices_end;
  };

  void find_updates(BucketIndex bucket);
  void find_state(BucketIndex bucket, const std::vector<layout::Piece>& pieces);
  void find_norm(Late& late, const ops::Clipping& clipping, ops::StreamSum* losses);
  void send_numbers(Late& late);
  [[nodiscard]] bool known_not_finite() const;
  bool bring_matrices_home(Late& late);
  void orthogonalize(Late& late, bool brought);
  [[nodiscard]] View words(std::int64_t sum) const;
  /// In fp32 runs, whose masters take no memory of their own.
  [[nodiscard]] bool masters_are_parameters() const {
    return engine_.parameter_dtype() == DType::f32;
  }
  [[nodiscard]] Numbers& numbers() const { return *reinterpret_cast<Numbers*>(numbers_.data()); }
  [[nodiscard]] Late& late_of(std::int64_t step) { return late_[turn_of(step)]; }
  [[nodiscard]] std::size_t turn_of(std::int64_t step) const {
    return static_cast<std::size_t>(step) % late_.size();
  }
  /// Collective; the same on all ranks.
  [[nodiscard]] std::string where_not_finite(const Late& late);
  [[nodiscard]] std::string found_before_reduction(const Late& late) const;
  [[nodiscard]] std::string found_in_sum(const Late& late) const;

  const OptimizerConfig config_;
  reduce::Engine& engine_;
  comm::Communicator& communicator_;
  comm::World& world_;
  device::Stream& compute_;

  const Groups groups_;
  const std::unique_ptr<Rule> rule_;
  std::optional<Matrices> matrices_;               // where the rule has some
  const BucketIndex matrices_before_;              // whose update they are orthogonalized
  std::vector<device::Buffer> memory_;             // by slot; that of the masters may be empty
  std::vector<std::vector<std::int64_t>> begins_;  // by slot and bucket, in that memory
  std::vector<BucketUpdates> buckets_;
  std::vector<ConstView> shards_;  // by bucket: this rank's share of the gradient, with padding
  std::vector<StatePiece> state_;
  ops::StreamSum squares_;
  device::Buffer sums_;  // the words of squares and losses, where ranks add them up
  std::unique_ptr<comm::Shards> sums_table_;
  device::Buffer numbers_;    // Numbers of the present step, on the device
  std::array<Late, 2> late_;  // by step, in turns
  std::int64_t skipped_in_a_row_ = 0;
};

}  // namespace trireme::optim
