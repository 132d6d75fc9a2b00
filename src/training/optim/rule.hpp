// SPDX-License-Identifier: Apache-2.0
// The optimizer's update rule, AdamW or Muon: its state slots and the update of pieces of a
// parameter. Everything else (reduction, norm, clipping, shards, gathers, checkpoints) is done by
// Optimizer (optimizer.hpp) and does not depend on the rule.
//
// AdamW has two moments per element (formula: ops/optimizer/adamw.hpp), stored in the deck's
// moment_dtype. With Muon hidden matrices are updated by their orthogonalized momentum, which is
// stored as the first moment with the same rounding, and have no second moment; all other
// parameters are AdamW's (formulas: ops/optimizer/muon.hpp and ops/optimizer/orthogonalize.hpp).
//
// A rule is elementwise: the pieces of a parameter may be on different ranks, each is updated
// separately, and no result depends on how a parameter is cut. An operation on whole matrices is
// between two elementwise parts: prepare() overwrites the gradients with the matrix to be
// orthogonalized (matrices.hpp), and update() reads the orthogonal matrix from the same memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "base/random.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/state.hpp"

#include "ops/optimizer/adamw.hpp"
#include "ops/optimizer/muon.hpp"
#include "ops/optimizer/reductions.hpp"

#include "optim/config.hpp"
#include "optim/groups.hpp"

namespace trireme::optim {

inline constexpr std::size_t most_slots = 5;

/// A piece of one parameter and its state. Each view has the same number of elements, or is empty.
struct Update {
  View parameter;                        ///< in the run's dtype
  std::array<View, most_slots> state{};  ///< by slot, of its dtype; state[0] may be `parameter`;
                                         ///< empty if the parameter does not have the slot
  View gradient;                         ///< fp32, summed over the ranks
  ParameterIndex index{};
  std::int64_t begin = 0;  ///< first element within the parameter
  std::size_t group = 0;   ///< of Groups
  bool whole = false;      ///< a piece of a hidden matrix of Muon
};

/// The coefficients of AdamW in step `step`, counted from 1: learning rate and weight decay follow
/// the schedules of `config`, and the bias correction the number of the update.
ops::AdamwStep step_of(const OptimizerConfig& config,
                       std::int64_t step,
                       std::int64_t total_steps,
                       std::int64_t update);

class Rule {
 public:
  /// `seed`: run.seed.
  Rule(const OptimizerConfig& config, const Groups& groups, std::uint64_t seed);

  /// Call before the updates of step `step`, counted from 1, of a run of `total_steps`. `update`:
  /// of the run, counted from 1; the step itself without local steps.
  void begin_step(std::int64_t step, std::int64_t total_steps, std::int64_t update);
  /// For pieces of hidden matrices, before any update of the step: replaces the gradient by the
  /// matrix to be orthogonalized. If `norm` is not finite, nothing is written.
  void prepare(const Update& update, const ops::GradientNorm& norm, device::Stream& stream) const;
  /// Enqueues the updates of one bucket. `norm` is in memory of the stream's device; if it is not
  /// finite, nothing is written.
  void update(std::span<const Update> updates,
              const ops::GradientNorm& norm,
              device::Stream& stream);

 private:
  /// Position of a piece's elements in the random sequence of the current step.
  [[nodiscard]] ops::MomentRounding rounding_of(const Update& update) const;

  const RandomKey key_;
  std::uint64_t update_ = 0;
  std::vector<OptimizerConfig> configs_;  // by group, with its learning rate and weight decay
  std::vector<ops::AdamwStep> adamw_;     // of the current step, by group
  std::vector<ops::MuonStep> muon_;       // likewise
  std::vector<ops::Adamw> ranges_;        // of the current call
};

/// The slots of that rule, then those of local steps; at most most_slots. The first is the master.
layout::StateSlots state_slots(const OptimizerConfig& config);

}  // namespace trireme::optim
