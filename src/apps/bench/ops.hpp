// SPDX-License-Identifier: Apache-2.0
// `trireme bench ops`: times every operation of a training step alone, with the sizes of a deck,
// and computes its share of a rank's step.
//
// A row's rate is FLOP/s for products and bytes/s for everything else; bytes are those that the
// operation must read and write once. Its share is of the *ceiling* of that kind: the best rate of
// the deck's products (bench/ceiling.hpp), or of passes over memory that does not fit the caches, read
// and written bytes counted. Small tensors stay in the caches, so their share can exceed 100 %.
//
// Deck keys that choose between implementations (gpu.fused_gelu, fused_gelu_backward and
// fused_bias_gradients, model.loss_rows) have a row for each one that the device supports; those
// that the deck does not use are counted 0 times.
//
// Attention's FLOP are the causal half, and a row is one document. All ranks measure at the same
// time (race.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/json.hpp"
#include "device/device.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"

namespace trireme::bench {

struct OpsBenchRow {
  std::string op;
  double per_step = 0;  ///< calls in one rank's step
  double seconds = 0;   ///< of one call
  double bytes = 0, flops = 0;
  bool product = false;  ///< its rate is in FLOP/s
};

struct OpsBench {
  DType dtype = DType::f32;
  int ranks = 1, threads = 1;
  double matrix_ceiling = 0;  ///< FLOP/s of one rank
  double memory_ceiling = 0;  ///< bytes/s of one rank
  double block_flops = 0;     ///< FLOP/s of one rank (bench/ceiling.hpp); 0: not known
  std::size_t copied_bytes = 0;
  std::vector<OpsBenchRow> rows;

  [[nodiscard]] double rate(const OpsBenchRow& row) const;
  [[nodiscard]] double share(const OpsBenchRow& row) const;
  /// Sum over all rows of their time in a step.
  [[nodiscard]] double step_seconds() const;
  /// FLOP of the step's products and attention, divided by what the matrix ceiling allows in that
  /// time.
  [[nodiscard]] double step_share() const;
};

/// Collective. Uses OpenMP's number of threads.
OpsBench bench_ops(const session::Job& job,
                   device::Device& device,
                   comm::World& world,
                   int repetitions);

std::string ops_table(const OpsBench& bench);
/// {"matrix_ceiling_flops": …, "memory_ceiling_bytes_per_s": …, "rows": [{"op": …, …}, …]}
Json ops_json(const OpsBench& bench);

}  // namespace trireme::bench
