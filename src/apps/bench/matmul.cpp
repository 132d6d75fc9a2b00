// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <omp.h>

#include "base/text.hpp"

#include "model/layers.hpp"
#include "nn/linear_products.hpp"

#include "session/machine.hpp"
#include "session/rank_memory.hpp"

#include "bench/ceiling.hpp"
#include "bench/deck_bench.hpp"

namespace trireme::bench {
namespace {

Json json_of(const ProductRow& row) {
  return {{"layer", row.layer},
          {"pass", row.pass},
          {"how", row.how},
          {"m", row.m},
          {"n", row.n},
          {"k", row.k},
          {"count", row.count},
          {"threads", row.threads},
          {"seconds", row.seconds},
          {"flops_per_s", row.flops_per_s()},
          {"library", row.library},
          {"kernel", row.kernel}};
}

}  // namespace

double micro_batches_of(const session::Job& job, int ranks) {
  const batches::Batches batch = session::batches_of(job, job.batch.sequences, ranks);
  return static_cast<double>(batch.updates * batch.most_sequences()) /
         static_cast<double>(batch.micro_sequences);
}

std::pair<std::string, Json> bench_matmul(const session::Job& job,
                                          device::Device& device,
                                          comm::World& world,
                                          int repetitions) {
  const DType dtype = session::choose_dtype(job.run.precision, device, world);
  const int threads = omp_get_max_threads();
  const auto products =
      model::linear_products(job.shape, dtype, job.batch.micro_sequences, device.kind());
  const double block_flops = measure_blocks(dtype, device, world, threads);
  std::vector<ProductRow> rows;
  const auto measure = [&](int on_threads) {
    std::ranges::move(measure_products(products, dtype, device, world, on_threads, Field::all,
                                       {.repetitions = repetitions},
                                       session::operation_options(job, device).products),
                      std::back_inserter(rows));
  };
  if (threads > 1 && device.kind() == device::Kind::cpu)
    measure(1);
  measure(threads);

  const double micro_steps = micro_batches_of(job, world.size());
  std::map<std::string, double> best_flops;  // FLOP/s of one rank by implementation
  double floor_s = 0, step_s = 0;            // of the products of one step
  double product_flops = 0;                  // of these products on one rank
  for (std::size_t i = 0; i < products.size(); ++i)
    for (const char* pass : {"forward", "input", "weight"}) {
      const double times = micro_steps * static_cast<double>(products[i].count);
      double best_s = std::numeric_limits<double>::infinity();
      for (const ProductRow& row : rows) {
        if (row.threads != threads || row.listed != i || row.pass != pass)
          continue;
        best_s = std::min(best_s, row.seconds);
        best_flops[row.library] = std::max(best_flops[row.library], row.flops_per_s());
        if (row.how == "step")
          step_s += times * row.seconds;
      }
      floor_s += times * best_s;
      product_flops += times * products[i].flops();
    }
  const auto& [ceiling_library, ceiling_flops] =
      *std::ranges::max_element(best_flops, {}, &std::map<std::string, double>::value_type::second);

  std::string table =
      fmt::format("{:<22}{:<9}{:<9}{:>6}{:>7}{:>7}{:>8}{:>11}{:>10}{:>12}  {}\n", "layer", "pass",
                  "how", "m", "n", "k", "threads", "us", "GFLOP/s", "of ceiling", "by");
  Json json = {{"precision", name(dtype)},
               {"ranks", world.size()},
               {"threads", threads},
               {"ceiling_flops", ceiling_flops},
               {"ceiling_library", ceiling_library},
               {"best_flops", best_flops},
               {"block_flops", block_flops},
               {"floor_seconds", floor_s},
               {"step_seconds", step_s},
               {"product_flops", product_flops},
               {"rows", Json::array()}};
  for (const ProductRow& row : rows) {
    table += fmt::format("{:<22}{:<9}{:<9}{:>6}{:>7}{:>7}{:>8}{:>11.1f}{:>10.1f}{:>10.1f} %  {}\n",
                         row.layer, row.pass, row.how, row.m, row.n, row.k, row.threads,
                         row.seconds * 1e6, row.flops_per_s() / 1e9,
                         100 * row.flops_per_s() / ceiling_flops,
                         row.library + (row.kernel.empty() ? "" : " " + row.kernel));
    json["rows"].push_back(json_of(row));
  }
  table += "best  ";
  for (const auto& [library, flops] : best_flops)
    table += fmt::format("  {:.1f} GFLOP/s by {};", flops / 1e9, library);
  table += block_flops == 0 ? "\n"
                            : fmt::format(" {:.1f} GFLOP/s in a block in the first-level cache\n",
                                          block_flops / 1e9);
  table += fmt::format(
      "ceiling {:.1f} GFLOP/s per rank ({}, {}, {} at a time), by {}\n"
      "floor   {:.1f} ms: the products of a step, each with its fastest kernel\n"
      "step    {:.1f} ms: the same products with the kernels of a step, {:.1f} % of the ceiling\n",
      ceiling_flops / 1e9, name(dtype), counted(threads, "thread"), counted(world.size(), "rank"),
      ceiling_library, floor_s * 1e3, step_s * 1e3, 100 * product_flops / step_s / ceiling_flops);
  return {table, json};
}

}  // namespace trireme::bench
