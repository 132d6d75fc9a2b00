// SPDX-License-Identifier: Apache-2.0
#include "bench/ceiling.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include "base/on_exit.hpp"
#include "device/recorder.hpp"

#include "model/layers.hpp"
#include "ops/cpu/onednn/library_matmul.hpp"
#include "ops/elementwise.hpp"
#include "ops/matmul.hpp"

#include "session/machine.hpp"

namespace trireme::bench {
namespace {

using nn::LinearShape;
using nn::ListedProduct;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

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

void add_layer(const ListedProduct& listed,
               std::size_t number,
               DType dtype,
               int threads,
               Field field,
               const ops::ProductOptions& options,
               Operands& operands,
               device::Stream& stream,
               std::vector<Contestant>& all) {
  const device::Device& device = stream.device();
  const LayerRuns runs = runs_of(listed, dtype, options, field == Field::all ? &options : nullptr,
                                 stream, [&](const char* name, DType type, std::int64_t size) {
                                   return operands.of(name, type, size);
                                 });
  const auto add = [&](const char* pass, const char* how,
                       const ops::MatmulShape& s) -> Contestant& {
    return all.emplace_back(Contestant{.row = {.layer = listed.layer,
                                               .pass = pass,
                                               .how = how,
                                               .m = s.m,
                                               .n = s.n,
                                               .k = s.k,
                                               .count = listed.count,
                                               .threads = threads,
                                               .library = ops::product_library(device),
                                               .kernel = {},
                                               .listed = number},
                                       .run = {}});
  };
  const auto add_own = [&](const char* pass, const ops::MatmulShape& shape,
                           const LayerRuns::Run& plain, const LayerRuns::Run& with_more) {
    add(pass, with_more ? "plain" : "step", shape).run = plain;
    if (with_more)
      add(pass, "step", shape).run = with_more;
  };
  const LinearShape plain = listed.plain();
  const ops::MatmulShape forward = plain.forward(), input = plain.input_gradient();
  ops::MatmulShape gradient = plain.weight_gradient();
  gradient.row_sums = false;  // the library has none
  add_own("forward", forward, runs.forward, runs.forward_with_gelu);
  add_own("input", input, runs.input, runs.input_with_gelu);
  add_own("weight", gradient, runs.weight_gradient, runs.weight_gradient_with_bias);
  if (device.kind() != device::Kind::cpu || !ops::library_multiplies(dtype))
    return;
  const auto add_library = [&](const char* pass, const ops::MatmulShape& shape, bool packed,
                               ConstView a, ConstView b, ConstView bias, View c) {
    const auto product = ops::make_library_matmul(stream.device(), shape, packed, b);
    Contestant& one = add(pass, packed ? "packed" : "library", shape);
    one.row.library = fmt::format("oneDNN {}", ops::onednn_version());
    one.row.kernel = product.kernel;
    one.run = [=] { product.multiply(a, bias, c); };
  };
  const LayerRuns::Operands& o = runs.operands;
  const View none(nullptr, 0, dtype);
  for (const bool packed : {false, true}) {
    if (!packed && field == Field::likely)
      continue;
    add_library("forward", forward, packed, o.x, o.weight, o.bias, o.y);
    add_library("input", input, packed, o.dy, o.weight, none, o.dx);
  }
  add_library("weight", gradient, false, o.dy, o.x, none, o.dweight);
}

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

LayerRuns runs_of(const ListedProduct& listed,
                  DType dtype,
                  const ops::ProductOptions& options,
                  const ops::ProductOptions* fused_options,
                  device::Stream& stream,
                  const std::function<View(const char*, DType, std::int64_t)>& operand) {
  const LinearShape& p = listed.products;
  const bool own_bias = p.bias && !listed.bias_is_fused;
  const LayerRuns::Operands o{
      .x = operand("x", dtype, p.rows * p.in),
      .weight = operand("weight", dtype, p.in * p.out),
      .bias = p.bias ? operand("bias", dtype, p.out) : View(nullptr, 0, dtype),
      .y = operand("result", p.y, p.rows * p.out),
      .dx = operand("result", dtype, p.rows * p.in),
      .dy = operand("y", dtype, p.rows * p.out),
      .dweight = operand("weight gradient", DType::f32, p.in * p.out),
      .dbias =
          own_bias ? operand("bias gradient", DType::f32, p.out) : View(nullptr, 0, DType::f32)};
  const auto product = [&](const ops::MatmulShape& shape, const ops::ProductOptions& with) {
    return std::make_shared<ops::Matmul>(stream.device(), shape, with);
  };
  device::Stream& s = stream;
  const LinearShape plain = listed.plain();
  ops::MatmulCall forward{.a = o.x, .b = o.weight, .bias = o.bias, .c = o.y};
  ops::MatmulCall input{.a = o.dy, .b = o.weight, .c = o.dx};
  ops::MatmulCall weight{.a = o.dy, .b = o.x, .c = o.dweight};
  LayerRuns made;
  made.operands = o;
  const auto run_of = [&s](const auto& multiply, const ops::MatmulCall& call) {
    return [=, &s] { (*multiply)(call, s); };
  };
  made.forward = run_of(product(plain.forward(), options), forward);
  made.input = run_of(product(plain.input_gradient(), options), input);
  made.weight_gradient = run_of(product(plain.weight_gradient(), options), weight);
  if (fused_options == nullptr)
    return made;
  if (p.gelu_after)
    if (const auto fused = product(p.forward(), *fused_options); fused->fuses_epilogue()) {
      forward.z = operand("before gelu", dtype, p.rows * p.out);
      made.forward_with_gelu = run_of(fused, forward);
    }
  if (p.gelu_before)
    if (const auto fused = product(p.input_gradient(), *fused_options); fused->fuses_epilogue()) {
      input.z = operand("before gelu", dtype, p.rows * p.in);
      made.input_with_gelu = run_of(fused, input);
    }
  if (own_bias)
    if (const auto fused = product(p.weight_gradient(), *fused_options); fused->sums_rows()) {
      weight.row_sums = o.dbias;
      made.weight_gradient_with_bias = run_of(fused, weight);
    }
  return made;
}

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
  return mean(world.gather_all({&best, 1}));
}

std::size_t bytes_to_stream(const device::Device& device, const comm::World& world) {
  constexpr std::size_t least = std::size_t{256} << 20U;
  const std::int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or negative: not known
  if (device.kind() != device::Kind::cpu || cache <= 0)
    return least;
  return std::max(
      least, 2 * static_cast<std::size_t>(cache) / static_cast<std::size_t>(world.local_size()));
}

double measure_memory(std::size_t size, device::Device& device, comm::World& world) {
  const auto stream = device.make_stream(device::StreamMode::inlined, "bench");
  const device::Buffer first = device.allocate(size, "bench"),
                       second = device.allocate(size, "bench");
  const View a = first.view(DType::f32), b = second.view(DType::f32);
  const bool adds = device.kind() == device::Kind::cpu;  // on all threads, unlike a copy
  const auto pass = [&](View to, View from) {
    if (adds)
      ops::run(ops::Add{.sum = to, .term = from}, *stream);
    else
      device.copy(to, from, *stream);
  };
  pass(b, a);  // pages are real once written
  return (adds ? 3.0 : 2.0) * static_cast<double>(size) /
         race({[&] { pass(a, b); }}, *stream, world, {}).front();
}

std::vector<ProductRow> measure_products(const std::vector<ListedProduct>& products,
                                         DType dtype,
                                         device::Device& device,
                                         comm::World& world,
                                         int threads,
                                         Field field,
                                         const RaceLimits& limits,
                                         const ops::ProductOptions& options) {
  const OnExit restore([before = omp_get_max_threads()] { omp_set_num_threads(before); });
  omp_set_num_threads(threads);
  const auto stream = device.make_stream(device::StreamMode::inlined, "bench");
  Operands operands(device, *stream);
  std::vector<Contestant> contestants;
  for (std::size_t i = 0; i < products.size(); ++i)
    add_layer(products[i], i, dtype, threads, field, options, operands, *stream, contestants);
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

double measure_ceiling(const session::Job& job,
                       const model::GptShape& shape,
                       DType dtype,
                       device::Device& device,
                       comm::World& world) {
  const auto rates = measure_ceilings(shape, dtype, job.batch.micro_sequences, device, world,
                                      session::operation_options(job, device).products);
  return std::ranges::min(rates) == 0 ? 0 : mean(rates);
}

double ceiling_of(const session::Session& session, comm::World& world) {
  return measure_ceiling(session.job, session.shape, session.dtype, *session.device, world);
}

}  // namespace trireme::bench
