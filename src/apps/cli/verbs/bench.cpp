// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include <omp.h>

#include "files/output_file.hpp"

#include "comm/control/together.hpp"
#include "comm/control/world.hpp"

#include "session/machine.hpp"
#include "session/rank_memory.hpp"
#include "session/saver.hpp"

#include "bench/checkpoints.hpp"
#include "bench/collectives.hpp"
#include "bench/deck_bench.hpp"
#include "bench/fit.hpp"
#include "bench/race.hpp"
#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verb.hpp"
#include "deck/deck.hpp"
#include "plan/machine.hpp"

namespace trireme::cli {
namespace {

struct Report {
  std::string table;
  Json json;
  ExitCode code = ExitCode::done;
};

/// Options of every bench.
struct Common {
  std::string json;
  std::optional<int> repetitions;
};

void add_common(CLI::App& command, Common& common) {
  add_json(command, common.json);
  command
      .add_option("--repetitions", common.repetitions,
                  "Number of repetitions; a row is their median. Default: 7 for matmul and ops, "
                  "else 21.")
      ->check(CLI::Range(1, 100000));
}

ExitCode bench_on_ranks(Arguments arguments,
                        const std::string& json,
                        const std::function<Report(comm::World&)>& measure) {
  return under_mpi(arguments, [&](comm::World& world) {
    comm::on_first_rank(world, [&] { expect_new_file(json); });
    const Report report = measure(world);
    comm::on_first_rank(world, [&] { give_result(report.table, json, json_text(report.json)); });
    return report.code;
  });
}

/// Declares a bench of a deck: `measure`, with the device that a run of the deck would use.
Action declare_deck_bench(CLI::App& command, decltype(bench::bench_ops)* measure) {
  struct Options : Common {
    DeckArguments deck;
  };
  const auto options = std::make_shared<Options>();
  add_common(command, *options);
  add_deck(command, options->deck);
  return [=](Arguments arguments) {
    if (options->deck.path.empty())
      options->deck.path = "input/gpt2-124m.yaml";
    return bench_on_ranks(arguments, options->json, [&](comm::World& world) {
      Report report;
      with_deck(world, options->deck, [&](const SharedDeck& shared, Log& /*log*/) {
        const session::Job& job = shared.job;
        const int threads = session::choose_threads(job.run.threads, world);
        omp_set_num_threads(threads);
        const auto device = session::open_device(job.run.device, threads, world);
        const DType dtype = session::choose_dtype(job.run.precision, *device, world);
        std::tie(report.table, report.json) =
            measure(session::decided(job, world, *device, dtype), *device, world,
                    options->repetitions.value_or(bench::RaceLimits().repetitions));
        return ExitCode::done;
      });
      return report;
    });
  };
}

/// Measures this machine for the deck (bench/fit.hpp), its storage in the directory of `path`, and
/// writes the results into the machine file `path`, whose results for other numbers of ranks, hosts
/// or models are kept. Throws UserError before measuring if `path` is something else.
ExitCode fit_command(Arguments arguments,
                     const DeckArguments& deck,
                     const std::string& path,
                     const bench::FitRequest& request) {
  const auto fit = [&](comm::World& world, const SharedDeck& shared, Log& log) {
    plan::Machine older;
    comm::on_first_rank(world, [&] {
      files::expect_place_for(path);
      if (std::filesystem::exists(path))
        older = plan::read_machine(path);
    });
    const session::Job& job = shared.job;
    plan::Machine fresh = bench::measure_machine(job, world, log, request);
    const std::filesystem::path file(path);
    bench::measure_checkpoints(
        world, file.has_parent_path() ? file.parent_path().string() : ".", session::facts_of(job),
        fresh.compute.front().seconds(session::most_micro_steps(job, world.size())), fresh);
    comm::on_first_rank(world, [&] {
      print(plan::machine_table(fresh));
      files::write_staged(path, plan::machine_text(plan::merged(older, fresh)));
    });
    return ExitCode::done;
  };
  return with_deck_until_stopped(arguments, "trireme bench reduce", deck, fit);
}

}  // namespace

Action declare_bench_reduce(CLI::App& command) {
  struct Options : Common {
    bench::CollectivesBenchRequest request;
    DeckArguments deck;
    std::string fit;
  };
  static constexpr std::pair<DType, const char*> dtypes[] = {{DType::f32, "fp32"},
                                                             {DType::bf16, "bf16"}};
  const auto options = std::make_shared<Options>();
  bench::CollectivesBenchRequest& request = options->request;
  add_common(command, *options);
  const CLI::Option* bytes =
      command
          .add_option("--bytes", request.bytes,
                      "Sizes of a bucket in bytes, separated by commas. Default: 8 to 67108864.")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  const std::vector<CLI::Option*> of_the_deck = {
      add_choice(command, "--transport",
                 "Values of parallel.transport, separated by commas. Default: all that CPUs of "
                 "these hosts can use.",
                 EnumNames<comm::Transport>::table,
                 [&request](const auto& chosen) { request.transports = chosen; })
          ->delimiter(',')
          ->allow_extra_args(false),
      add_word(command, "--reduction", "Value of parallel.reduction. Default: sum.",
               EnumNames<comm::Reduction>::table, request.reduction),
      add_choice(command, "--dtype", "Data types, separated by commas: fp32, bf16. Default: fp32.",
                 dtypes, [&request](const auto& chosen) { request.dtypes = chosen; })
          ->delimiter(',')
          ->allow_extra_args(false),
      command.add_flag("!--no-baselines", request.baselines,
                       "Do not time MPI's functions and memcpy.")};
  CLI::Option* deck = add_deck(command, options->deck);
  CLI::Option* fit = command
                         .add_option("--fit", options->fit,
                                     "Measure this machine for DECK and write the machine file for "
                                     "`plan --machine`. Results are added to an existing file.")
                         ->needs(deck);
  deck->needs(fit);
  fit->excludes(command.get_option("--json"));
  for (CLI::Option* option : of_the_deck) fit->excludes(option);
  return [options, bytes, transport = of_the_deck.front()](Arguments arguments) {
    if (!options->fit.empty()) {
      bench::FitRequest fitted{.collectives = options->request, .chooses_sizes = bytes->empty()};
      fitted.collectives.repetitions =
          options->repetitions.value_or(fitted.collectives.repetitions);
      fitted.steps = options->repetitions.value_or(fitted.steps);
      return fit_command(arguments, options->deck, options->fit, fitted);
    }
    return bench_on_ranks(arguments, options->json, [&](comm::World& world) {
      bench::CollectivesBenchRequest timed = options->request;
      timed.repetitions = options->repetitions.value_or(timed.repetitions);
      timed.row_bytes = 1 << 16;
      timed.most_in_a_row = 20;  // as nccl-tests
      timed.seconds = 5;
      if (transport->empty() && world.size() > 1)
        timed.transports = {world.local_size() == world.size() ? comm::Transport::shared_memory
                                                               : comm::Transport::hierarchical,
                            comm::Transport::mpi};
      const bool on_gpus =
          std::ranges::find(timed.transports, comm::Transport::nccl) != timed.transports.end();
      const auto device = session::open_device(
          on_gpus ? session::DeviceChoice::cuda : session::DeviceChoice::cpu, 1, world);
      const auto rows = bench::bench_collectives(world, *device, timed);
      const bool right = std::ranges::all_of(rows, [](const auto& row) { return row.wrong == 0; });
      return Report{bench::collectives_table(rows), bench::collectives_json(rows),
                    right ? ExitCode::done : ExitCode::environment};
    });
  };
}

Action declare_bench_matmul(CLI::App& command) {
  return declare_deck_bench(command, bench::bench_matmul);
}

Action declare_bench_ops(CLI::App& command) {
  return declare_deck_bench(command, bench::bench_ops);
}

}  // namespace trireme::cli
