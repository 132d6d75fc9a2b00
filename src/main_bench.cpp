// SPDX-License-Identifier: Apache-2.0
#include "main_bench.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include <omp.h>

#include "base/build_info.hpp"

#include "device/bench.hpp"

#include "comm/bench.hpp"
#include "comm/together.hpp"
#include "comm/world.hpp"

#include "model/gpt.hpp"
#include "reduce/bench.hpp"
#include "reduce/layout_options.hpp"

#include "train/machine.hpp"

#include "job/deck.hpp"
#include "job/plan_command.hpp"

#include "bench/engine.hpp"
#include "bench/ops.hpp"
#include "main_train.hpp"
#include "measure/matmul_bench.hpp"

namespace trireme {
namespace {

/// Of `engine` and `shards` unless asked otherwise; the others' requests know theirs.
constexpr int repetitions = 21;

struct Report {
  std::string table, json;
  ExitCode code = ExitCode::done;
};

/// Prints, and writes the file; on one rank.
ExitCode give(const Report& report, const std::string& path) {
  print(report.table);
  if (!path.empty())
    job::write_new_file(path, report.json);
  return ExitCode::done;
}

ExitCode bench_on_ranks(int& argc,
                        char**& argv,
                        const Request& request,
                        const std::function<Report(comm::World&)>& measure) {
  return under_mpi(argc, argv, [&](comm::World& world) {
    comm::on_first_rank(world, [&] { job::expect_new_file(request.json); });
    const Report report = measure(world);
    comm::on_first_rank(world, [&] { give(report, request.json); });
    return report.code;
  });
}

/// `measure` with what a run of the deck would compute on.
ExitCode bench_deck(
    int& argc,
    char**& argv,
    const Request& request,
    const std::function<Report(const train::Job&, device::Device&, comm::World&)>& measure) {
  const std::string deck = request.deck.empty() ? "input/gpt2-124m.yaml" : request.deck;
  return bench_on_ranks(argc, argv, request, [&](comm::World& world) {
    Report report;
    with_deck(world, "bench", deck, request.overrides, [&](const train::Job& job, Log& /*log*/) {
      const int threads = train::choose_threads(job.run.threads, world);
      omp_set_num_threads(threads);
      report = measure(job, *train::open_device(job, threads, world), world);
      return ExitCode::done;
    });
    return report;
  });
}

ExitCode bench_reduce(int& argc, char**& argv, const Request& request) {
  return bench_on_ranks(argc, argv, request, [&](comm::World& world) {
    comm::BenchRequest asked = request.reduce;
    asked.repetitions = request.repetitions.value_or(asked.repetitions);
    const bool on_gpus =
        std::ranges::find(asked.transports, comm::Transport::nccl) != asked.transports.end();
    const auto device = train::open_device(
        on_gpus ? train::DeviceChoice::cuda : train::DeviceChoice::cpu, 1, world);
    const auto rows = comm::bench_reduce(world, *device, asked);
    const bool right = std::ranges::all_of(rows, [](const auto& row) { return row.wrong == 0; });
    return Report{comm::bench_table(rows), comm::bench_json(rows),
                  right ? ExitCode::done : ExitCode::environment};
  });
}

ExitCode bench_matmul(int& argc, char**& argv, const Request& request) {
  return bench_deck(
      argc, argv, request, [&](const train::Job& job, device::Device& device, comm::World& world) {
        measure::MatmulBenchRequest asked{.sequences = job.batch.sequences / world.size(),
                                          .micro_sequences = job.batch.micro_sequences,
                                          .threads = omp_get_max_threads()};
        asked.repetitions = request.repetitions.value_or(asked.repetitions);
        const auto products = measure::bench_matmul(
            job.shape, train::choose_dtype(job.run.precision, device, world), device, world, asked);
        return Report{measure::matmul_table(products), measure::matmul_json(products)};
      });
}

ExitCode bench_ops(int& argc, char**& argv, const Request& request) {
  return bench_deck(
      argc, argv, request, [&](const train::Job& job, device::Device& device, comm::World& world) {
        const auto parameters = model::parameter_table(job.shape);
        const layout::Plan plan(parameters,
                                reduce::layout_options(job.parallel, parameters, world.size(),
                                                       reduce::wire_of(world, device)));
        bench::OpsBenchRequest asked{.sequences = job.batch.sequences / world.size(),
                                     .micro_sequences = job.batch.micro_sequences,
                                     .owned_elements = job.optimizer.sharded
                                                           ? plan.owned_elements()
                                                           : plan.parameter_elements()};
        asked.repetitions = request.repetitions.value_or(asked.repetitions);
        const auto operations = bench::bench_ops(
            job.shape, train::choose_dtype(job.run.precision, device, world), device, world, asked);
        return Report{bench::ops_table(operations), bench::ops_json(operations)};
      });
}

ExitCode bench_engine(int& argc, char**& argv, const Request& request) {
  return bench_on_ranks(argc, argv, request, [&](comm::World& world) {
    Report report;
    with_deck(world, "bench", request.deck, request.overrides,
              [&](const train::Job& job, Log& log) {
                const auto result =
                    bench::bench_engine(job, world, log, request.repetitions.value_or(repetitions));
                report = {bench::engine_table(result), bench::engine_json(result)};
                return ExitCode::done;
              });
    return report;
  });
}

ExitCode bench_shards(const Request& request) {
  job::expect_new_file(request.json);
  const job::Deck deck = job::parse_for_plan(
      request.deck, request.overrides, {.ranks = request.ranks, .cuda = build_info().has_cuda});
  const job::DeckPlan plan = job::plan_of(deck.config, request.ranks);
  const auto result = reduce::bench_shards(plan.plan, *device::make_cpu_device(1),
                                           request.repetitions.value_or(repetitions));
  return give({reduce::shards_table(result), reduce::shards_json(result)}, request.json);
}

ExitCode bench_pool(const Request& request) {
  job::expect_new_file(request.json);
  device::PoolBenchRequest asked = request.pool;
  asked.repetitions = request.repetitions.value_or(asked.repetitions);
  const auto device =
      request.device == "cuda" ? device::make_cuda_device(0) : device::make_cpu_device(1);
  const auto bench = device::bench_pool(*device, asked);
  return give({device::pool_table(bench), device::pool_json(bench)}, request.json);
}

}  // namespace

ExitCode bench_command(int& argc, char**& argv, const Request& request) {
  switch (request.verb) {
    case Verb::bench_reduce:
      return bench_reduce(argc, argv, request);
    case Verb::bench_engine:
      return bench_engine(argc, argv, request);
    case Verb::bench_shards:
      return bench_shards(request);
    case Verb::bench_pool:
      return bench_pool(request);
    case Verb::bench_matmul:
      return bench_matmul(argc, argv, request);
    case Verb::bench_ops:
    default:
      return bench_ops(argc, argv, request);
  }
}

}  // namespace trireme
