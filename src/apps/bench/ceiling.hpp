// SPDX-License-Identifier: Apache-2.0
// What matrix products reach on this machine, for the shapes of a model: the rows of `trireme bench
// matmul` (bench/matmul.hpp), and the short form of it that a training run makes, to give its share
// of that ceiling.
//
//   step      as a training step computes it; on a GPU with what is part of the product there: the
//             bias, GELU or its gradient, the gradient of the bias (ops/options.hpp)
//   plain     the product without the GELU or the gradient of the bias, where step has one
//   library   the whole product as one call of oneDNN, plain layouts; on CPUs, in builds with it
//   packed    the same with the weights brought into the library's own layout beforehand
//
// The *ceiling* is the best rate of any row, in FLOP/s of one rank on all its threads.
//
// All ranks measure at the same time, as they compute at the same time: caches, memory and the
// clock of the cores are shared (race.hpp). Measuring touches no state of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "device/device.hpp"

#include "model/config.hpp"
#include "nn/product_list.hpp"
#include "ops/options.hpp"

#include "comm/control/world.hpp"

#include "session/session.hpp"

#include "bench/race.hpp"

namespace trireme::bench {

/// Which kernels run: all, or those only that may be the fastest: without library, and plain where
/// there is plain.
enum class Field : std::uint8_t { all, likely };

/// One product in one pass, computed in one way.
struct ProductRow {
  std::string layer;
  std::string pass;  ///< forward, input (gradient), weight (gradient)
  std::string how;   ///< step, plain, library, packed
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t count = 0;  ///< per micro-step
  int threads = 1;
  double seconds = 0;      ///< of one product
  std::string library;     ///< what computes it: "trireme", "oneDNN 2.6.3", "cuBLASLt"
  std::string kernel;      ///< oneDNN's name for it; empty in rows of the step
  std::size_t listed = 0;  ///< its layer's place in the list that is measured

  [[nodiscard]] double flops_per_s() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds;
  }
};

/// A row for each pass of each product and each way to compute it, on `threads` threads. Collective.
std::vector<ProductRow> measure_products(const std::vector<nn::ListedProduct>& products,
                                         DType dtype,
                                         device::Device& device,
                                         comm::World& world,
                                         int threads,
                                         Field field,
                                         const RaceLimits& limits,
                                         const ops::ProductOptions& options);

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
/// The same for the model and the device of a run.
double ceiling_of(const session::Session& session, comm::World& world);

}  // namespace trireme::bench
