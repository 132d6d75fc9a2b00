// SPDX-License-Identifier: Apache-2.0
// Computes what a step costs a rank without communication, from the compute rows of a machine file.
//
// 1. It uses the row of the same model, precision, threads and micro-batch with the nearest number
//    of ranks on a host. If there are more ranks than CPUs, they share the CPUs evenly.
// 2. If the model or the micro-batch was not measured, it uses the FLOP/s of the row of the same
//    precision that is nearest in FLOP of a micro-step. Gradients are then assumed to complete in
//    the order of the layout at an even pace. The result is marked as an estimate.
// 3. The times when gradients are complete also give the times when layers are read and gradients
//    are first written: backward takes two thirds of a micro-step, in the reverse order of forward,
//    and continues to a layer when the one before is complete. A parameter with its own bucket (a
//    tied embedding) is written by the head first.
#pragma once

#include <cstdint>
#include <string>

#include "layout/plan.hpp"

#include "model/config.hpp"

#include "plan/machine.hpp"
#include "plan/step.hpp"

namespace trireme::plan {

/// The name in a machine file of everything that decides the time of a micro-step, other than
/// precision, threads and micro-batch.
std::string model_text(const model::GptShape& shape);

/// The work of a rank that is planned.
struct Work {
  std::string model;
  Numbers precision = Numbers::fp32;
  std::int64_t threads = 0;  ///< 0: as measured
  std::int64_t micro_sequences = 1;
  double micro_step_flops = 0;
  std::int64_t ranks_on_host = 1;
};

struct ComputeCost {
  const Compute* row = nullptr;  ///< null: nothing of this precision was measured
  double crowded = 1;            ///< times as long as in the row: more ranks share the CPUs
  double slower = 1;             ///< the same for what counts by FLOP
  bool same_work = false;        ///< rule 1
  bool same_ranks = false;       ///< on a host
};

ComputeCost find_compute(const Machine& machine, const Work& work);

/// Fills in plan, buckets, reads, and what compute takes: micro-steps, rest, and of each bucket
/// written, ready, norm_s and update_s. The plan outlives the model. `sharded`: a rank updates what
/// it owns, else everything. `matrices_part`: of all matrices, those of the busiest rank.
/// Requires: cost.row.
void fill_compute(StepModel& model,
                  const ComputeCost& cost,
                  const layout::Plan& plan,
                  bool sharded,
                  double matrices_part);

}  // namespace trireme::plan
