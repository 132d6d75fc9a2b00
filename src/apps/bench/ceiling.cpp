// SPDX-License-Identifier: Apache-2.0
#include "bench/ceiling.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include "device/recorder.hpp"

#include "model/layers.hpp"
#include "nn/linear_products.hpp"
#include "ops/cpu/onednn/library_matmul.hpp"
#include "ops/matmul.hpp"

#include "session/machine.hpp"

#include "bench/race.hpp"

namespace trireme::bench {
namespace {

using nn::LinearShape;
using nn::ListedProduct;

/// A row that is being measured.
struct Contestant {
  ProductRow row;
  std::function<void()> run;
};

/// Operands by name, shared by all kernels.
class Operands {
 public:
  Operands(device::Device& device, device::Stream& stream) : device_(device), stream_(stream) {}

  /// Created at the first use, and again where a later layer needs a larger one.
  View of(const std::string& name, DType dtype, std::int64_t elements) {
    std::vector<device::Buffer>& made = buffers_[name];
    // Sized for fp32, so that any dtype fits.
    const std::size_t bytes = static_cast<std::size_t>(elements) * size_bytes(DType::f32);
    if (made.empty() || made.back().bytes() < bytes) {
      made.push_back(device_.allocate(bytes, "bench"));
      fill_small_numbers(made.back().view(dtype, 0, elements), stream_);
    }
    return made.back().view(dtype, 0, elements);
  }

 private:
  device::Device& device_;
  device::Stream& stream_;
  std::map<std::string, std::vector<device::Buffer>> buffers_;
};

/// The three products of one layer, each with its kernels.
class LayerBench {
 public:
  LayerBench(const ListedProduct& p,
             DType dtype,
             device::Device& device,
             device::Stream& stream,
             const ops::ProductOptions& options)
      : products_(p), dtype_(dtype), device_(device), stream_(stream), options_(options) {}

  void add(std::vector<Contestant>& all, Operands& operands, int threads, Field field) {
    const LinearShape& p = products_.products;
    const View x = operands.of("x", dtype_, p.rows * p.in),
               weight = operands.of("weight", dtype_, p.in * p.out);
    const View bias = p.bias ? operands.of("bias", dtype_, p.out) : View(nullptr, 0, dtype_);
    const View dy = operands.of("y", dtype_, p.rows * p.out);
    const View y = operands.of("result", p.y, p.rows * p.out);
    const View dx = operands.of("result", dtype_, p.rows * p.in);
    const View dweight = operands.of("weight gradient", DType::f32, p.in * p.out);

    auto linear = std::make_shared<nn::LinearProducts>(device_, products_.plain(), options_);
    linear->prepare_backward(device_);
    const auto row = [&](const char* pass, const char* how, const ops::MatmulShape& s) {
      return ProductRow{products_.layer,
                        pass,
                        how,
                        s.m,
                        s.n,
                        s.k,
                        products_.count,
                        threads,
                        0,
                        ops::product_library(device_),
                        {}};
    };
    const ops::MatmulShape forward{.m = p.rows,
                                   .n = p.out,
                                   .k = p.in,
                                   .b_transposed = true,
                                   .a = dtype_,
                                   .b = dtype_,
                                   .c = p.y,
                                   .bias = p.bias};
    const ops::MatmulShape input{
        .m = p.rows, .n = p.in, .k = p.out, .a = dtype_, .b = dtype_, .c = dtype_};
    const ops::MatmulShape gradient{.m = p.out,
                                    .n = p.in,
                                    .k = p.rows,
                                    .a_transposed = true,
                                    .a = dtype_,
                                    .b = dtype_,
                                    .c = DType::f32,
                                    .accumulate = true};
    device::Stream& s = stream_;
    const InOneProduct in_one = in_one_product(operands, field);
    const auto add = [&](const char* pass, const ops::MatmulShape& shape,
                         std::function<void()> plain, const std::function<void()>& with_more) {
      all.push_back({row(pass, with_more ? "plain" : "step", shape), std::move(plain)});
      if (with_more)
        all.push_back({row(pass, "step", shape), with_more});
    };
    add(
        "forward", forward, [=, &s] { linear->forward(y, x, weight, bias, s); }, in_one.forward);
    add(
        "input", input, [=, &s] { linear->backward_input(dx, dy, weight, s); }, in_one.input);
    add(
        "weight", gradient, [=, &s] { linear->backward_weight(dweight, dy, x, s); }, in_one.weight);
    if (device_.kind() != device::Kind::cpu || !ops::library_multiplies(dtype_))
      return;
    for (const bool packed : {false, true}) {
      if (!packed && field == Field::likely)
        continue;
      add_library(all, row("forward", packed ? "packed" : "library", forward), forward, packed, x,
                  weight, bias, y);
      add_library(all, row("input", packed ? "packed" : "library", input), input, packed, dy,
                  weight, View(nullptr, 0, dtype_), dx);
    }
    add_library(all, row("weight", "library", gradient), gradient, false, dy, x,
                View(nullptr, 0, dtype_), dweight);
  }

 private:
  /// The fused operations of a step's product; empty if there are none.
  struct InOneProduct {
    std::function<void()> forward, input, weight;
  };
  InOneProduct in_one_product(Operands& operands, Field field) {
    InOneProduct made;
    if (field == Field::likely)
      return made;
    const LinearShape& p = products_.products;
    auto linear = std::make_shared<nn::LinearProducts>(device_, p, options_);
    linear->prepare_backward(device_);
    const View x = operands.of("x", dtype_, p.rows * p.in),
               dy = operands.of("y", dtype_, p.rows * p.out);
    const View weight = operands.of("weight", dtype_, p.in * p.out);
    device::Stream& s = stream_;
    if (p.gelu_after && linear->fuses_gelu_after())
      made.forward = [=, &s, y = operands.of("result", p.y, p.rows * p.out),
                      z = operands.of("before gelu", dtype_, p.rows * p.out),
                      bias =
                          p.bias ? operands.of("bias", dtype_, p.out) : View(nullptr, 0, dtype_)] {
        linear->forward_gelu(y, z, x, weight, bias, s);
      };
    if (p.gelu_before && linear->fuses_gelu_before())
      made.input = [=, &s, dz = operands.of("result", dtype_, p.rows * p.in),
                    z = operands.of("before gelu", dtype_, p.rows * p.in)] {
        linear->backward_input_gelu(dz, z, dy, weight, s);
      };
    if (p.bias && !products_.bias_is_fused && linear->sums_bias())
      made.weight = [=, &s, dweight = operands.of("weight gradient", DType::f32, p.in * p.out),
                     dbias = operands.of("bias gradient", DType::f32, p.out)] {
        linear->backward_weight_and_bias(dweight, dbias, dy, x, s);
      };
    return made;
  }

  void add_library(std::vector<Contestant>& all,
                   ProductRow row,
                   const ops::MatmulShape& shape,
                   bool packed,
                   ConstView a,
                   ConstView b,
                   ConstView bias,
                   View c) {
    const auto product = ops::make_library_matmul(device_, shape, packed, b);
    row.library = fmt::format("oneDNN {}", ops::onednn_version());
    row.kernel = product.kernel;
    all.push_back({std::move(row), [=] { product.multiply(a, bias, c); }});
  }

  const ListedProduct& products_;
  const DType dtype_;
  device::Device& device_;
  device::Stream& stream_;
  const ops::ProductOptions options_;
};

/// Sets the number of OpenMP threads for its lifetime.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~ThreadScope() { omp_set_num_threads(before_); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

}  // namespace

double measure_blocks(DType dtype, device::Device& device, comm::World& world, int threads) {
  constexpr int trials = 20;
  constexpr std::int64_t blocks = 2000;
  const ops::Matmul product(device,
                            {.m = 64, .n = 64, .k = 64, .a = dtype, .b = dtype, .c = dtype});
  double best = 0;
  world.barrier();
  for (int i = 0; i < trials; ++i) {
    const double start = device::steady_seconds();
    double flops = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flops)
    flops += product.run_blocks(blocks);
    best = std::max(best, flops / (device::steady_seconds() - start));
  }
  const auto all = world.gather_all({&best, 1});
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

std::size_t bytes_to_copy(const device::Device& device, const comm::World& world) {
  constexpr std::size_t least = std::size_t{256} << 20U;
  const std::int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or negative: not known
  if (device.kind() != device::Kind::cpu || cache <= 0)
    return least;
  return std::max(
      least, 2 * static_cast<std::size_t>(cache) / static_cast<std::size_t>(world.local_size()));
}

double measure_copy(std::size_t size,
                    device::Device& device,
                    device::Stream& stream,
                    comm::World& world) {
  const device::Buffer from = device.allocate(size, "bench");
  const device::Buffer to = device.allocate(size, "bench");
  device.fill_zero(from.view(DType::f32), stream);  // pages are real once written
  const auto seconds =
      race({[&] { device.copy(to.view(DType::f32), from.view(DType::f32), stream); }}, stream,
           world, {});
  return 2.0 * static_cast<double>(size) / seconds.front();
}

std::vector<ProductRow> measure_products(const std::vector<ListedProduct>& products,
                                         DType dtype,
                                         device::Device& device,
                                         comm::World& world,
                                         int threads,
                                         Field field,
                                         const RaceLimits& limits,
                                         const ops::ProductOptions& options) {
  const ThreadScope scope(threads);
  const auto stream = device.make_stream(device::StreamMode::inlined, "bench");
  Operands operands(device, *stream);
  std::vector<Contestant> contestants;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const std::size_t first = contestants.size();
    LayerBench(products[i], dtype, device, *stream, options)
        .add(contestants, operands, threads, field);
    for (std::size_t row = first; row < contestants.size(); ++row) contestants[row].row.listed = i;
  }
  std::vector<std::function<void()>> entrants;
  entrants.reserve(contestants.size());
  for (const Contestant& contestant : contestants) entrants.push_back(contestant.run);
  const auto seconds = race(entrants, *stream, world, limits);
  std::vector<ProductRow> rows;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    rows.push_back(std::move(contestants[i].row));
    rows.back().seconds = seconds[i];
  }
  return rows;
}

namespace {

/// The number of rows with which the largest product takes 10 ms on a GPU, at least 16 or all. With
/// all rows, an emulated or shared GPU could take hours.
std::int64_t rows_in_time(const std::vector<ListedProduct>& products,
                          DType dtype,
                          device::Device& device,
                          comm::World& world,
                          const ops::ProductOptions& options) {
  constexpr std::int64_t least = 16, factor = 4;
  constexpr double enough_seconds = 10e-3;
  ListedProduct largest = *std::ranges::max_element(
      products, {}, [](const ListedProduct& p) { return p.products.in * p.products.out; });
  const std::int64_t all = largest.products.rows;
  for (std::int64_t rows = std::min(all, least); rows < all; rows = std::min(all, rows * factor)) {
    largest.products.rows = rows;
    for (const ProductRow& row :
         measure_products({largest}, dtype, device, world, omp_get_max_threads(), Field::likely,
                          {.repetitions = 1, .warmups = 0}, options))
      if (row.seconds > enough_seconds)
        return rows;
  }
  return all;
}

}  // namespace

std::vector<double> measure_ceilings(const model::GptShape& shape,
                                     DType dtype,
                                     std::int64_t micro_sequences,
                                     device::Device& device,
                                     comm::World& world,
                                     const ops::ProductOptions& options) {
  // This many rows are enough for a CPU's best rate; a GPU needs all rows of a step, within limits.
  constexpr std::int64_t most_rows_on_cpu = 512;
  constexpr RaceLimits briefly{.repetitions = 15, .seconds = 0.5};
  auto products = model::linear_products(shape, dtype, micro_sequences, device.kind());
  std::erase_if(products, [](const ListedProduct& p) { return p.logits; });
  const auto alone = comm::make_self_world();
  world.barrier();
  double best = 0;
  try {
    const std::int64_t most = device.kind() == device::Kind::cpu
                                  ? most_rows_on_cpu
                                  : rows_in_time(products, dtype, device, *alone, options);
    for (ListedProduct& p : products)
      if (p.products.rows > most)
        p.products.rows = most;
    for (const ProductRow& row :
         measure_products(products, dtype, device, *alone, omp_get_max_threads(), Field::likely,
                          briefly, options))
      best = std::max(best, row.flops_per_s());
  } catch (const EnvironmentError&) {  // the run uses all memory, and must not fail because of this
    best = 0;
  } catch (const std::bad_alloc&) {
    best = 0;
  }
  return world.gather_all({&best, 1});
}

double measure_ceiling(const model::GptShape& shape,
                       DType dtype,
                       std::int64_t micro_sequences,
                       device::Device& device,
                       comm::World& world,
                       const ops::ProductOptions& options) {
  double sum = 0;
  for (const double one : measure_ceilings(shape, dtype, micro_sequences, device, world, options)) {
    if (one == 0)
      return 0;
    sum += one;
  }
  return sum / static_cast<double>(world.size());
}

double ceiling_of(const session::Session& session, comm::World& world) {
  return measure_ceiling(session.shape, session.dtype, session.job.batch.micro_sequences,
                         *session.device, world,
                         session::operation_options(session.job, *session.device).products);
}

}  // namespace trireme::bench
