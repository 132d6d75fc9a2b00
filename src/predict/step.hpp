// SPDX-License-Identifier: Apache-2.0
// The time of one step out of its parts, in the engine's order (reduce/engine.hpp):
//
//   rest          gradients are set to zero, data comes
//   micro-steps   the first waits for each bucket's gather just before it needs its parameters; in
//                 the last, each bucket is reduced when its gradients are complete and all buckets
//                 before it in layout order are on their way
//   norm          bucket by bucket in layout order: wait for its reduction, add squares
//   sums          one exchange of all ranks
//   update        bucket by bucket, the last one first: update, then its gather is enqueued; before
//                 the first bucket with hidden matrices, these are orthogonalized (Muon)
//   control       one exchange of all ranks
//
// With an overlap switch off, compute waits right after each collective of its kind. Gathers of one
// step run into the next; so some steps are played, until one is like the one before it, and the
// last counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "predict/timeline.hpp"

namespace trireme::predict {

/// Seconds of one bucket; 0 for a collective that does not happen.
struct BucketCost {
  double reduce_s = 0, gather_s = 0;
  double ready_s = 0;   ///< after the begin of a micro-step that reduces: gradients are complete
  double needed_s = 0;  ///< after the begin of the first micro-step: parameters are read
  double norm_s = 0, update_s = 0;
};

struct StepModel {
  std::vector<BucketCost> buckets;  ///< in layout order
  std::int64_t micro_steps = 1;
  double micro_step_s = 0;
  double reducing_micro_step_s = 0;  ///< of one in which buckets are reduced: the last one
  double rest_s = 0, sums_s = 0, control_s = 0;
  double matrices_s = 0;            ///< Muon's
  std::size_t matrices_before = 0;  ///< the bucket before whose update they come
  /// Of the slowest rank's compute: what the others do not need, on average, and wait.
  double waiting_share = 0;
  bool overlap_gradients = true, overlap_parameters = true;
  bool reduces_each = false;  ///< every micro-step reduces
  Sharing sharing;
};

struct StepPrediction {
  double step_s = 0;
  double exposed_s = 0;        ///< in which compute waited, both exchanges and ranks included
  double compute_s = 0;        ///< a step without communication
  double communication_s = 0;  ///< of the collectives by themselves, and both exchanges

  /// What overlap cannot beat, if communication took nothing from compute.
  [[nodiscard]] double least_s() const {
    return compute_s > communication_s ? compute_s : communication_s;
  }
};

/// Requires: at least one micro-step; ready_s and needed_s lie within theirs.
StepPrediction predict_step(const StepModel& model);

}  // namespace trireme::predict
