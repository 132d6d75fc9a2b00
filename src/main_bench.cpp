// SPDX-License-Identifier: Apache-2.0
#include "main_bench.hpp"

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/build_info.hpp"

#include "device/bench.hpp"

#include "comm/bench.hpp"
#include "comm/together.hpp"
#include "comm/world.hpp"

#include "reduce/bench.hpp"

#include "job/deck.hpp"
#include "job/plan_command.hpp"

#include "main_train.hpp"

namespace trireme {

struct BenchVerb::Words {
  CLI::App* bench = nullptr;
  CLI::App* reduce = nullptr;
  CLI::App* shards = nullptr;
  CLI::App* pool = nullptr;
  std::string json;
  int repetitions = 21;
  std::string deck;
  std::vector<std::string> overrides;
  int ranks = 1;
  std::vector<std::string> dtypes{"fp32"};
  bool no_baselines = false;
  comm::BenchRequest reduce_request;
  device::PoolBenchRequest pool_request;
};

namespace {

template <class E>
std::map<std::string, E> words_of() {
  std::map<std::string, E> all;
  for (const auto& [value, text] : EnumNames<E>::table) all.emplace(text, value);
  return all;
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
  w.reduce->add_option("--transport", w.reduce_request.transports, "As parallel.transport")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(words_of<comm::Transport>()));
  w.reduce->add_option("--reduction", w.reduce_request.reduction, "As parallel.reduction")
      ->transform(CLI::CheckedTransformer(words_of<comm::Reduction>()));
  w.reduce->add_option("--dtype", w.dtypes, "fp32, bf16")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp32", "bf16"}));
  w.reduce->add_flag("--no-baselines", w.no_baselines, "Without MPI's functions and memcpy");

  w.shards = add("shards", "Finding every shard's address, with and without the cache");
  w.shards->add_option("DECK", w.deck, "YAML file")->required();
  w.shards->add_option("OVERRIDES", w.overrides, "section.key=value, as on a run");
  w.shards->add_option("--ranks", w.ranks, "Ranks that the run will have")
      ->check(CLI::Range(1, 1 << 20));

  w.pool = add("pool", "A lease of scratch memory beside allocating it");
  w.pool->add_option("--bytes", w.pool_request.bytes, "Sizes")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1} << 34));
}

BenchVerb::~BenchVerb() = default;

bool BenchVerb::asked() const {
  return words_->bench->parsed();
}

ExitCode BenchVerb::run(int& argc, char**& argv) {
  Words& w = *words_;
  if (w.reduce->parsed()) {
    w.reduce_request.repetitions = w.repetitions;
    w.reduce_request.baselines = !w.no_baselines;
    w.reduce_request.dtypes.clear();
    for (const std::string& dtype : w.dtypes)
      w.reduce_request.dtypes.push_back(dtype == "bf16" ? DType::bf16 : DType::f32);
    return under_mpi(argc, argv, [&](comm::World& world) {
      const auto device = device::make_cpu_device(1);
      const auto rows = comm::bench_reduce(world, *device, w.reduce_request);
      comm::on_first_rank(world,
                          [&] { give(comm::bench_table(rows), comm::bench_json(rows), w.json); });
      return ExitCode::done;
    });
  }
  const auto device = device::make_cpu_device(1);
  if (w.shards->parsed()) {
    const job::Deck deck = job::parse(job::read_deck_file(w.deck), w.deck, w.overrides,
                                      job::Circumstances{w.ranks, build_info().has_cuda});
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
