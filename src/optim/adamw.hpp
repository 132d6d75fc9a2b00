// SPDX-License-Identifier: Apache-2.0
// AdamW over the shards that this rank owns (ZeRO-1), with clipping by the norm of the whole
// gradient.
//
// One step: wait for each bucket's reduction and add the squares of what is owned; merge the sums
// of all ranks; derive the clip factor; update the owned pieces bucket by bucket in forward order,
// and hand each bucket back to the engine, which gathers it while the next ones are updated.
//
// 1. The state covers owned elements only: an fp32 master (none in fp32 runs, where the parameter
// itself is the master) and two moments. Not sharded, every rank holds and updates everything, with
// the same bits.
// 2. The gradient norm is a sum without order (ops/order_free_sum.hpp) over parameter elements,
// never padding, so its bits depend on the summed gradients only: not on buckets, padding, sharding
// or who owns what.
// 3. Weight decay applies per parameter, as layout::Parameter::decay says.
// 4. Padding is never written; it stays zero in parameters and state.
// 5. A gradient that is not finite ends the step before anything is updated, with the same
// UserError on all ranks: the usual reason is the deck (learning rate, precision).
//
// Threads: everything from the host thread that owns the compute stream. step() is collective and
// blocks the host once, for the norm.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/world.hpp"
#include "ops/adamw_step.hpp"
#include "ops/order_free_sum.hpp"

#include "reduce/engine.hpp"

#include "optim/config.hpp"

namespace trireme::optim {

/// State of one contiguous part of one parameter, fp32: what initialization writes and what a
/// checkpoint saves and loads.
struct StatePiece {
  ParameterIndex parameter{};
  std::int64_t parameter_begin = 0;  ///< first element within the parameter
  View master;                       ///< in fp32 runs a view of the parameter itself
  View m;
  View v;
};

struct StepResult {
  double grad_norm = 0;  ///< L2 norm of the scaled gradient, before clipping
  double learning_rate = 0;
};

/// The numbers of step `step`, counted from 1, for the parameters that decay; those that do not
/// take them with a weight decay of 0. `grad_norm` is that of the scaled gradient, before clipping.
ops::AdamwStep step_of(const OptimizerConfig& config,
                       std::int64_t step,
                       std::int64_t total_steps,
                       double gradient_scale,
                       double grad_norm);

class AdamW {
 public:
  /// The engine, the world, the device and the compute stream outlive the optimizer. The state
  /// starts as zero; write the masters and call publish_parameters() before the first step.
  AdamW(const OptimizerConfig& config,
        reduce::Engine& engine,
        comm::World& world,
        device::Device& device,
        device::Stream& compute);

  /// Takes step number `step`, counted from 1, with gradients times `gradient_scale`
  /// (1 / (ranks · micro-steps)). Requires: every gradient was reported ready to the engine.
  /// Throws UserError, on all ranks alike, naming the parameter and the rank that found it, when
  /// the norm is not finite.
  StepResult step(std::int64_t step, std::int64_t total_steps, double gradient_scale);

  /// What this rank keeps, in layout order. Sharded: every element of every parameter is in exactly
  /// one piece of one rank; otherwise each rank has all of them, and the parts of rank r that it
  /// should write to a checkpoint are those inside plan().pieces(bucket, r).
  [[nodiscard]] std::span<const StatePiece> state() const { return state_; }
  /// After the masters were written from outside: rounds them into the parameters and gathers.
  /// Collective.
  void publish_parameters();

  /// Bytes of masters, and of both moments, on this rank.
  [[nodiscard]] std::size_t master_bytes() const { return master_.bytes(); }
  [[nodiscard]] std::size_t moment_bytes() const { return m_.bytes() + v_.bytes(); }

 private:
  /// One call of the update: a piece of one parameter.
  struct Update {
    View parameter, master, m, v;
    ConstView gradient;
    bool decays = false;
  };
  struct BucketUpdates {
    std::vector<Update> updates;
    std::vector<ConstView> squared;  // this rank's share of the norm
  };

  void find_updates(BucketIndex bucket);
  double gradient_norm(double gradient_scale);
  [[noreturn]] void report_not_finite(std::int64_t step);
  [[nodiscard]] std::string found_before_reduction() const;
  [[nodiscard]] std::string found_in_sum() const;

  const OptimizerConfig config_;
  reduce::Engine& engine_;
  comm::World& world_;
  device::Stream& compute_;

  device::Buffer master_, m_, v_;
  std::vector<BucketUpdates> buckets_;
  std::vector<StatePiece> state_;
  ops::StreamSum squares_;
};

}  // namespace trireme::optim
