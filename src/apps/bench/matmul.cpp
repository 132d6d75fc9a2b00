// SPDX-License-Identifier: Apache-2.0
#include "bench/matmul.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <omp.h>

#include "base/text.hpp"

#include "model/layers.hpp"
#include "nn/linear_products.hpp"

#include "session/machine.hpp"

namespace trireme::bench {

MatmulBench bench_matmul(const session::Job& job,
                         device::Device& device,
                         comm::World& world,
                         int repetitions) {
  MatmulBench bench;
  bench.dtype = session::choose_dtype(job.run.precision, device, world);
  bench.ranks = world.size();
  bench.threads = omp_get_max_threads();
  const auto products =
      model::linear_products(job.shape, bench.dtype, job.batch.micro_sequences, device.kind());
  bench.block_flops = measure_blocks(bench.dtype, device, world, bench.threads);
  const auto measure = [&](int threads) {
    for (auto& row : measure_products(products, bench.dtype, device, world, threads, Field::all,
                                      {.repetitions = repetitions},
                                      session::operation_options(job, device).products))
      bench.rows.push_back(std::move(row));
  };
  if (bench.threads > 1 && device.kind() == device::Kind::cpu)
    measure(1);
  measure(bench.threads);
  const double micro_steps = static_cast<double>(job.batch.sequences / world.size()) /
                             static_cast<double>(job.batch.micro_sequences);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const nn::ListedProduct& p = products[i];
    for (const char* pass : {"forward", "input", "weight"}) {
      double best = std::numeric_limits<double>::infinity();
      for (const ProductRow& row : bench.rows) {
        if (row.threads != bench.threads || row.listed != i || row.pass != pass)
          continue;
        best = std::min(best, row.seconds);
        if (row.flops_per_s() > bench.ceiling_flops) {
          bench.ceiling_flops = row.flops_per_s();
          bench.ceiling_library = row.library;
        }
        if (row.how == "step")
          bench.step_seconds += micro_steps * static_cast<double>(p.count) * row.seconds;
      }
      bench.floor_seconds += micro_steps * static_cast<double>(p.count) * best;
      bench.product_flops += micro_steps * static_cast<double>(p.count) * p.flops();
    }
  }
  return bench;
}

std::map<std::string, double> MatmulBench::best_flops() const {
  std::map<std::string, double> best;
  for (const ProductRow& row : rows)
    if (row.threads == threads)
      best[row.library] = std::max(best[row.library], row.flops_per_s());
  return best;
}

std::string matmul_table(const MatmulBench& bench) {
  std::string text =
      fmt::format("{:<22}{:<9}{:<9}{:>6}{:>7}{:>7}{:>8}{:>11}{:>10}{:>12}  {}\n", "layer", "pass",
                  "how", "m", "n", "k", "threads", "us", "GFLOP/s", "of ceiling", "by");
  for (const ProductRow& row : bench.rows)
    text += fmt::format("{:<22}{:<9}{:<9}{:>6}{:>7}{:>7}{:>8}{:>11.1f}{:>10.1f}{:>10.1f} %  {}\n",
                        row.layer, row.pass, row.how, row.m, row.n, row.k, row.threads,
                        row.seconds * 1e6, row.flops_per_s() / 1e9,
                        100 * row.flops_per_s() / bench.ceiling_flops,
                        row.library + (row.kernel.empty() ? "" : " " + row.kernel));
  text += "best  ";
  for (const auto& [library, flops] : bench.best_flops())
    text += fmt::format("  {:.1f} GFLOP/s by {};", flops / 1e9, library);
  text += bench.block_flops == 0
              ? "\n"
              : fmt::format(" {:.1f} GFLOP/s in a block in the first-level cache\n",
                            bench.block_flops / 1e9);
  return text +
         fmt::format(
             "ceiling {:.1f} GFLOP/s per rank ({}, {}, {} at a time), by {}\n"
             "floor   {:.1f} ms: the products of a step, each with its fastest kernel\n"
             "step    {:.1f} ms: the same products with the kernels of a step, {:.1f} % of the "
             "ceiling\n",
             bench.ceiling_flops / 1e9, name(bench.dtype), counted(bench.threads, "thread"),
             counted(bench.ranks, "rank"), bench.ceiling_library, bench.floor_seconds * 1e3,
             bench.step_seconds * 1e3,
             100 * bench.product_flops / bench.step_seconds / bench.ceiling_flops);
}

Json matmul_json(const MatmulBench& bench) {
  Json json = {{"precision", name(bench.dtype)},
               {"ranks", bench.ranks},
               {"threads", bench.threads},
               {"ceiling_flops", bench.ceiling_flops},
               {"ceiling_library", bench.ceiling_library},
               {"best_flops", bench.best_flops()},
               {"block_flops", bench.block_flops},
               {"floor_seconds", bench.floor_seconds},
               {"step_seconds", bench.step_seconds},
               {"product_flops", bench.product_flops},
               {"rows", Json::array()}};
  for (const ProductRow& row : bench.rows)
    json["rows"].push_back({{"layer", row.layer},
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
                            {"kernel", row.kernel}});
  return json;
}

}  // namespace trireme::bench
