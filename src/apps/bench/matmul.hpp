// SPDX-License-Identifier: Apache-2.0
// `trireme bench matmul`: measures matrix products with the shapes of a deck, on one thread and on
// all threads (see bench/ceiling.hpp).
//
// The *floor* is the time of a step's products on one rank without gaps, each with its fastest
// kernel. No step with these products can be shorter.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/json.hpp"
#include "device/device.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"

#include "bench/ceiling.hpp"

namespace trireme::bench {

struct MatmulBench {
  /// The best rate of each implementation, in FLOP/s of one rank.
  [[nodiscard]] std::map<std::string, double> best_flops() const;

  DType dtype = DType::f32;
  int ranks = 1, threads = 1;
  std::vector<ProductRow> rows;
  double ceiling_flops = 0;     ///< FLOP/s of one rank
  std::string ceiling_library;  ///< of the row that reached it
  double block_flops = 0;       ///< FLOP/s of one rank from the first-level cache; 0: not known
  double floor_seconds = 0;     ///< of one step
  double step_seconds = 0;      ///< the same products as the step computes them
  double product_flops = 0;     ///< FLOP of these products in one step of one rank
};

/// Collective. On a CPU measures one thread and, if OpenMP has more, all threads.
MatmulBench bench_matmul(const session::Job& job,
                         device::Device& device,
                         comm::World& world,
                         int repetitions);

std::string matmul_table(const MatmulBench& bench);
/// {"ceiling_flops": …, "floor_seconds": …, …, "rows": [{"layer": …, "pass": …, …}, …]}
Json matmul_json(const MatmulBench& bench);

}  // namespace trireme::bench
