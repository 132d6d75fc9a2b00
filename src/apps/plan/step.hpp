// SPDX-License-Identifier: Apache-2.0
// Computes the time of one step from its parts, in the engine's order (reduce/engine.hpp):
//
//   rest          gradients are set to zero, data comes
//   micro-steps   each reading of a layer waits for the gathers of its buckets. In the last
//                 micro-step, or in each, a bucket is reduced when its gradients are complete and
//                 all buckets before it in layout order are on their way. Where buckets share slots
//                 (layout/residency.hpp), the first write to one waits for the reduction of the bucket
//                 that had the slot before it
//   norm          bucket by bucket in layout order: wait for its reduction, add squares
//   sums          one exchange of all ranks
//   update        bucket by bucket, the last one first: update, then its gather is enqueued; before
//                 the first bucket with hidden matrices, these are orthogonalized (Muon). A run
//                 does that bucket by bucket and sends them between ranks (optim/matrices.hpp), so
//                 it has more products during its gathers, and transfers, which are not modelled
//   control       one exchange of all ranks
//
// With shard: parameters a bucket is gathered before a layer reads it, in forward and in backward:
// layout::Residency decides when, as in a run (reduce/parameter_store.hpp).
//
// With an overlap switch off, compute waits right after each collective of its kind. Gathers of one
// step continue into the next. So steps are simulated until one equals the step before it, and the
// last one counts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "layout/plan.hpp"
#include "layout/residency.hpp"

#include "plan/timeline.hpp"

namespace trireme::plan {

/// Of one bucket; a collective that does not happen takes 0 s. Moments are shares of a micro-step.
struct BucketCost {
  double reduce_s = 0, gather_s = 0;
  std::int64_t reduce_bytes = 0, gather_bytes = 0;  ///< that a rank sends in one of them
  double written = 0;                               ///< backward writes its first gradient
  double ready = 1;                                 ///< its gradients are complete
  double norm_s = 0, update_s = 0;
};

struct StepModel {
  const layout::Plan* plan = nullptr;  ///< outlives the model. Requires: a plan
  std::vector<BucketCost> buckets;     ///< in layout order
  std::vector<double> reads;           ///< when each of layout::readings(*plan) begins; ascending
  std::int64_t micro_steps = 1;
  double micro_step_s = 0;
  double reducing_micro_step_s = 0;  ///< of one in which buckets are reduced: the last one
  double rest_s = 0, sums_s = 0, control_s = 0;
  double matrices_s = 0;            ///< Muon's
  std::size_t matrices_before = 0;  ///< the bucket before whose update they come
  double waiting_share = 0;  ///< mean share of the slowest rank's compute in which the others wait
  bool overlap_gradients = true, overlap_parameters = true;
  bool reduces_each = false;                       ///< every micro-step reduces
  bool shares_slots = false;                       ///< of gradients. Requires: reduces_each
  std::optional<layout::GatherOptions> layerwise;  ///< shard: parameters
  Sharing sharing;
};

struct StepPrediction {
  double step_s = 0;
  double exposed_s = 0;         ///< in which compute waited, both exchanges and ranks included
  double compute_s = 0;         ///< a step without communication
  double communication_s = 0;   ///< of the collectives alone, and both exchanges
  double exchanges_s = 0;       ///< of it: both exchanges, for which compute always waits
  std::int64_t sent_bytes = 0;  ///< by a rank in its collectives

  /// Lower limit of the step's time with overlap, if communication took nothing from compute.
  /// Collectives run during the exchanges as well.
  [[nodiscard]] double least_s() const {
    return std::max(compute_s + exchanges_s, communication_s - exchanges_s);
  }
};

/// Requires: at least one micro-step; a cost for each bucket and a moment for each reading.
StepPrediction predict_step(const StepModel& model);

}  // namespace trireme::plan
