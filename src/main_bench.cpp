// SPDX-License-Identifier: Apache-2.0
#include "main_bench.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/build_info.hpp"

#include "device/bench.hpp"

#include "comm/bench.hpp"
#include "comm/together.hpp"
#include "comm/world.hpp"

#include "reduce/bench.hpp"

#include "train/engine_bench.hpp"

#include "job/deck.hpp"
#include "job/plan_command.hpp"

#include "main_bench_matmul.hpp"
#include "main_bench_ops.hpp"
#include "main_train.hpp"

namespace trireme {

struct BenchVerb::Words {
  CLI::App* bench = nullptr;
  CLI::App* reduce = nullptr;
  CLI::App* shards = nullptr;
  CLI::App* pool = nullptr;
  CLI::App* engine = nullptr;
  std::string json;
  int repetitions = 21;
  std::string deck;
  std::vector<std::string> overrides;
  int ranks = 1;
  std::vector<std::string> dtypes{"fp32"};
  std::vector<comm::Reduction> reductions;
  bool no_baselines = false;
  MatmulBenchVerb matmul;
  OpsBenchVerb ops;
  comm::BenchRequest reduce_request;
  device::PoolBenchRequest pool_request;
};

namespace {

/// The deck's words for an enumeration, as an option's type.
template <class E>
CLI::Option* add_enum(CLI::App& verb,
                      const char* option,
                      const char* help,
                      std::vector<E>& values) {
  std::vector<std::string> all;
  for (const auto& [value, text] : EnumNames<E>::table) all.emplace_back(text);
  return verb
      .add_option_function<std::vector<std::string>>(
          option,
          [&values](const std::vector<std::string>& words) {
            values.clear();
            for (const std::string& word : words)
              for (const auto& [value, text] : EnumNames<E>::table)
                if (word == text)
                  values.push_back(value);
          },
          help)
      ->check(CLI::IsMember(all));
}

/// Prints, and writes the file; on one rank.
void give(const std::string& table, const std::string& json, const std::string& path) {
  std::fputs(table.c_str(), stdout);
  if (!path.empty())
    job::write_new_file(path, json);
}

}  // namespace

BenchVerb::BenchVerb(CLI::App& app) : words_(std::make_unique<Words>()) {
  Words& w = *words_;
  w.bench = app.add_subcommand("bench", "One part alone, in seconds");
  w.bench->require_subcommand(1);
  const auto add = [&](const char* name, const char* help) {
    CLI::App* verb = w.bench->add_subcommand(name, help);
    verb->add_option("--json", w.json, "Write the rows into this new file as well");
    verb->add_option("--repetitions", w.repetitions, "A row is the median of so many")
        ->check(CLI::Range(1, 100000));
    return verb;
  };
  w.reduce = add("reduce", "Collectives beside MPI's own, under mpirun");
  w.reduce->add_option("--bytes", w.reduce_request.bytes, "Sizes of a bucket")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add_enum(*w.reduce, "--transport", "As parallel.transport", w.reduce_request.transports)
      ->delimiter(',');
  add_enum(*w.reduce, "--reduction", "As parallel.reduction", w.reductions)->expected(1);
  w.reduce->add_option("--dtype", w.dtypes, "fp32, bf16")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp32", "bf16"}));
  w.reduce->add_flag("--no-baselines", w.no_baselines, "Without MPI's functions and memcpy");

  w.engine = add("engine", "A step at one rank beside the same step without the engine");
  w.engine->add_option("DECK", w.deck, "YAML file")->required();
  w.engine->add_option("OVERRIDES", w.overrides, "section.key=value, as on a run");

  w.shards = add("shards", "Finding every shard's address, with and without the cache");
  w.shards->add_option("DECK", w.deck, "YAML file")->required();
  w.shards->add_option("OVERRIDES", w.overrides, "section.key=value, as on a run");
  w.shards->add_option("--ranks", w.ranks, "Ranks that the run will have")
      ->check(CLI::Range(1, 1 << 20));

  w.pool = add("pool", "A lease of scratch memory beside allocating it");
  w.pool->add_option("--bytes", w.pool_request.bytes, "Sizes")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1} << 34));

  w.matmul.describe(*w.bench);
  w.ops.describe(*w.bench);
}

BenchVerb::~BenchVerb() = default;

bool BenchVerb::asked() const {
  return words_->bench->parsed();
}

ExitCode BenchVerb::run(int& argc, char**& argv) {
  Words& w = *words_;
  if (w.matmul.asked())
    return w.matmul.run(argc, argv);
  if (w.ops.asked())
    return w.ops.run(argc, argv);
  if (w.reduce->parsed()) {
    w.reduce_request.repetitions = w.repetitions;
    w.reduce_request.baselines = !w.no_baselines;
    w.reduce_request.dtypes.clear();
    if (!w.reductions.empty())
      w.reduce_request.reduction = w.reductions.front();
    for (const std::string& dtype : w.dtypes)
      w.reduce_request.dtypes.push_back(dtype == "bf16" ? DType::bf16 : DType::f32);
    return under_mpi(argc, argv, [&](comm::World& world) {
      comm::on_first_rank(world, [&] { job::expect_new_file(w.json); });
      const auto device = device::make_cpu_device(1);
      const auto rows = comm::bench_reduce(world, *device, w.reduce_request);
      comm::on_first_rank(world,
                          [&] { give(comm::bench_table(rows), comm::bench_json(rows), w.json); });
      return ExitCode::done;
    });
  }
  job::expect_new_file(w.json);
  if (w.engine->parsed()) {
    const auto world = comm::make_self_world();
    return with_deck(*world, w.deck, w.overrides, [&](const train::Job& job, Log& log) {
      const auto result = train::bench_engine(job, *world, log, w.repetitions);
      give(train::engine_table(result), train::engine_json(result), w.json);
      return ExitCode::done;
    });
  }
  const auto device = device::make_cpu_device(1);
  if (w.shards->parsed()) {
    const job::Deck deck =
        job::parse_for_plan(w.deck, w.overrides, {.ranks = w.ranks, .cuda = build_info().has_cuda});
    const job::DeckPlan plan = job::plan_of(deck.config, w.ranks);
    const auto result = reduce::bench_shards(plan.plan, *device, w.repetitions);
    give(reduce::shards_table(result), reduce::shards_json(result), w.json);
  } else {
    w.pool_request.repetitions = w.repetitions;
    const auto rows = device::bench_pool(*device, w.pool_request);
    give(device::pool_table(rows), device::pool_json(rows), w.json);
  }
  return ExitCode::done;
}

}  // namespace trireme
