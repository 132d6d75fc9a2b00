// SPDX-License-Identifier: Apache-2.0
// Measures the speed of matrix products with the shapes of a model: for `trireme bench matmul`
// (bench/deck_bench.hpp), and in a short form for training runs, which report their share of it.
//
//   step      as a training step computes it; on a GPU with what is part of the product there: the
//             bias, GELU or its gradient, the gradient of the bias (ops/options.hpp)
//   plain     the product without the GELU or the gradient of the bias, where step has one
//   library   the whole product as one call of oneDNN, plain layouts; on CPUs, in builds with it
//   packed    the same with the weights brought into the library's own layout beforehand
//
// The *ceiling* is the best rate of any row, in FLOP/s of one rank on all its threads. A faster kernel
// raises it. The *block rate* (measure_blocks) does not depend on how operands come to the kernel:
// it is close to the peak of the instruction.
//
// All ranks measure at the same time, because they share caches, memory and clock frequency in a
// run as well (race.hpp). Measuring does not change the state of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/view.hpp"
#include "device/device.hpp"

#include "model/config.hpp"
#include "nn/linear_products.hpp"
#include "ops/options.hpp"

#include "comm/control/world.hpp"

#include "session/session.hpp"

#include "bench/race.hpp"

namespace trireme::bench {

/// All kernels, or only those that may be the fastest (no library, and plain if there is one).
enum class Field : std::uint8_t { all, likely };

/// The products of a layer as functions, with their operands. Those that fuse GELU, its gradient or
/// the gradient of the bias are empty if the device does not fuse them.
struct LayerRuns {
  using Run = std::function<void()>;
  struct Operands {
    View x, weight, bias, y, dx, dy, dweight, dbias;
  } operands;
  Run forward, input, weight_gradient;
  Run forward_with_gelu, input_with_gelu, weight_gradient_with_bias;
};
/// `operand` makes operands by name, type and elements. `fused`: options of what is in one product;
/// null: nothing is.
LayerRuns runs_of(const nn::ListedProduct& listed,
                  DType dtype,
                  const ops::ProductOptions& options,
                  const ops::ProductOptions* fused,
                  device::Stream& stream,
                  const std::function<View(const char*, DType, std::int64_t)>& operand);

struct ProductRow {
  std::string layer;
  std::string pass;  ///< forward, input (gradient), weight (gradient)
  std::string how;   ///< step, plain, library, packed
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t count = 0;  ///< per micro-step
  int threads = 1;
  double seconds = 0;      ///< per product
  std::string library;     ///< the implementation: "trireme", "oneDNN 2.6.3", "cuBLASLt"
  std::string kernel;      ///< oneDNN's name for it; empty in rows of the step
  std::size_t listed = 0;  ///< index of its layer in the measured list

  [[nodiscard]] double flops_per_s() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds;
  }
};

/// FLOP/s of one rank with `threads` threads that run the innermost block of the device's products
/// on operands in the first-level cache (Matmul::run_blocks): the mean of the ranks, each its best
/// of several trials. 0 where the device's kernels are a library's. Collective.
double measure_blocks(DType dtype, device::Device& device, comm::World& world, int threads);

/// Bytes of each operand that measure_memory() should have on one rank: on a GPU 256 MiB; on a CPU,
/// those of all ranks of a host together are four times the size of its last-level cache.
std::size_t bytes_to_stream(const device::Device& device, const comm::World& world);

/// Bytes read and written per second by adding one operand of `size` bytes to another, on a GPU by
/// copying it, on all ranks at the same time. It evicts the caches.
double measure_memory(std::size_t size, device::Device& device, comm::World& world);

/// Measures each pass of each product with each kernel, on `threads` threads. Collective.
std::vector<ProductRow> measure_products(const std::vector<nn::ListedProduct>& products,
                                         DType dtype,
                                         device::Device& device,
                                         comm::World& world,
                                         int threads,
                                         Field field,
                                         const RaceLimits& limits,
                                         const ops::ProductOptions& options);

/// The best rate of each rank for the layers without the head, on a CPU with at most 512 rows; 0
/// without enough memory. Takes about a second, with barriers only at both ends. Collective.
std::vector<double> measure_ceilings(const model::GptShape& shape,
                                     DType dtype,
                                     std::int64_t micro_sequences,
                                     device::Device& device,
                                     comm::World& world,
                                     const ops::ProductOptions& options = {});
/// The mean of these rates for a job; 0 if one of them is 0. Collective; the same on all ranks.
double measure_ceiling(const session::Job& job,
                       const model::GptShape& shape,
                       DType dtype,
                       device::Device& device,
                       comm::World& world);
/// The same for the model and the device of a run.
double ceiling_of(const session::Session& session, comm::World& world);

}  // namespace trireme::bench
