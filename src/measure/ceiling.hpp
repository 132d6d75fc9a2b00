// SPDX-License-Identifier: Apache-2.0
// `trireme bench matmul`: what matrix products reach on this machine, for the shapes of a deck; and
// the short form of it that a training run makes, to give its share of that ceiling.
//
//   step      as a training step computes it
//   library   the whole product as one call of oneDNN, plain layouts; on CPUs, in builds with it
//   packed    the same with the weights brought into the library's own layout beforehand
//
// The *ceiling* is the best rate of any row, in FLOP/s of one rank on all its threads. The *floor*
// is the time of a step's products back to back on one rank, each by its fastest row: no step can
// be shorter as long as these products are what it computes.
//
// All ranks measure at the same time, as they compute at the same time: caches, memory and the
// clock of the cores are shared (race.hpp). Measuring touches no state of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"

#include "device/device.hpp"

#include "comm/control/world.hpp"
#include "ops/options.hpp"

#include "model/config.hpp"

namespace trireme::measure {

struct MatmulBenchRequest {
  std::int64_t sequences = 0;        ///< of one rank in one step
  std::int64_t micro_sequences = 0;  ///< at a time
  int threads = 1;
  int repetitions = 7;
  ops::ProductOptions options = {};
};

struct MatmulBenchRow {
  std::string layer;
  std::string pass;  ///< forward, input (gradient), weight (gradient)
  std::string how;   ///< step, library, packed
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t count = 0;  ///< per micro-step
  int threads = 1;
  double seconds = 0;   ///< of one product
  std::string library;  ///< what computes it: "trireme", "oneDNN 2.6.3", "cuBLASLt"
  std::string kernel;   ///< oneDNN's name for it; empty in rows of the step

  [[nodiscard]] double flops_per_s() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds;
  }
};

struct MatmulBench {
  DType dtype = DType::f32;
  int ranks = 1, threads = 1;
  std::vector<MatmulBenchRow> rows;
  double ceiling_flops = 0;     ///< FLOP/s of one rank
  std::string ceiling_library;  ///< of the row that reached it
  double floor_seconds = 0;     ///< of one step
  double step_seconds = 0;      ///< the same products as the step computes them
  double product_flops = 0;     ///< FLOP of these products in one step of one rank
};

/// Collective. One thread, and all of them where they are more.
MatmulBench bench_matmul(const model::GptShape& shape,
                         DType dtype,
                         device::Device& device,
                         comm::World& world,
                         const MatmulBenchRequest& request);

/// The best rate that each rank reaches at these layers, without the head and on a CPU with at most
/// 512 rows: within about a second. Each rank takes its own time, so there is a barrier at the
/// beginning and at the end only. 0 for a rank that has no memory for it. By rank. Collective.
std::vector<double> measure_ceilings(const model::GptShape& shape,
                                     DType dtype,
                                     std::int64_t micro_sequences,
                                     device::Device& device,
                                     comm::World& world,
                                     const ops::ProductOptions& options = {});
/// Their mean; 0 where one of them is. Collective; the same on all ranks.
double measure_ceiling(const model::GptShape& shape,
                       DType dtype,
                       std::int64_t micro_sequences,
                       device::Device& device,
                       comm::World& world,
                       const ops::ProductOptions& options);

std::string matmul_table(const MatmulBench& bench);
/// {"ceiling_flops": …, "floor_seconds": …, …, "rows": [{"layer": …, "pass": …, …}, …]}
std::string matmul_json(const MatmulBench& bench);

}  // namespace trireme::measure
