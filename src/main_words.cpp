// SPDX-License-Identifier: Apache-2.0
#include "main_words.hpp"

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "base/key.hpp"

namespace trireme {

const char* const usage_text =
    "usage: trireme DECK [section.key=value ...]          train; start it with mpirun or srun\n"
    "       trireme check DECK [section.key=value ...] [--ranks N]\n"
    "       trireme plan DECK [section.key=value ...] [--ranks N] [--hosts H] [--json FILE]\n"
    "       trireme verify DECK [section.key=value ...] [--steps K]    under mpirun: is every "
    "switch\n"
    "                                                     invisible in the numbers?\n"
    "       trireme sample RUN_DIR [--prompt TEXT] [--tokens K] [--temperature T] [--seed S]\n"
    "       trireme speed RUN_DIR ... [--goal NAME=TOKENS_PER_S ...] [--warmup K] [--h5 FILE]\n"
    "       trireme bench reduce [--bytes N,...] [--transport T,...] [--dtype fp32,bf16]\n"
    "                            [--reduction R] [--no-baselines]      under mpirun\n"
    "       trireme bench engine DECK [section.key=value ...]     under mpirun or alone\n"
    "       trireme bench shards DECK [section.key=value ...] [--ranks N]\n"
    "       trireme bench pool [--bytes N,...] [--device cpu|cuda]\n"
    "                                              all: [--repetitions K] [--json FILE]\n"
    "       trireme bench matmul|ops [DECK] [section.key=value ...]        under mpirun or alone\n"
    "       trireme help deck [SECTION | KEY]\n"
    "       trireme --version | --help\n";

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw StorageError("file system", "write standard output", std::strerror(errno), __FILE__,
                       __LINE__);
}

namespace {

/// A verb that says so in the request when its word is met.
CLI::App* add_verb(CLI::App& app, const char* word, const char* help, Verb verb, Request& request) {
  CLI::App* added = app.add_subcommand(word, help);
  added->preparse_callback([&request, verb](std::size_t) { request.verb = verb; });
  return added;
}

/// Returns DECK, which the caller may require.
CLI::Option* add_deck(CLI::App& verb, Request& request) {
  CLI::Option* deck = verb.add_option("DECK", request.deck, "YAML file");
  verb.add_option("OVERRIDES", request.overrides, "section.key=value, as on a run");
  return deck;
}

void add_ranks(CLI::App& verb, Request& request) {
  verb.add_option("--ranks", request.ranks, "Ranks that the run will have")
      ->check(CLI::Range(1, 1 << 20));
}

void add_check(CLI::App& app, Request& request) {
  CLI::App* verb =
      add_verb(app, "check", "Find every mistake in a deck; needs no MPI", Verb::check, request);
  add_deck(*verb, request)->required();
  add_ranks(*verb, request);
}

void add_plan(CLI::App& app, Request& request) {
  CLI::App* verb = add_verb(app, "plan", "Buckets, padding, and the bytes that each rank holds",
                            Verb::plan, request);
  add_deck(*verb, request)->required();
  add_ranks(*verb, request);
  verb->add_option("--hosts", request.hosts,
                   "Hosts that they will be on, consecutive ranks together")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--json", request.json, "Write the plan into this new file as well");
}

void add_verify(CLI::App& app, Request& request) {
  CLI::App* verb = add_verb(app, "verify", "Train under every switch and compare the bits",
                            Verb::verify, request);
  add_deck(*verb, request)->required();
  verb->add_option("--steps", request.steps, "Steps under each combination")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000}));
}

void add_sample(CLI::App& app, Request& request) {
  CLI::App* verb =
      add_verb(app, "sample", "Text from the newest checkpoint of a run", Verb::sample, request);
  verb->add_option("RUN_DIR", request.run_directory, "The run's directory")->required();
  verb->add_option("--prompt", request.text.prompt, "What the text continues");
  verb->add_option("--tokens", request.text.tokens, "How many tokens")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  verb->add_option("--temperature", request.text.temperature, "0: the most likely token each time")
      ->check(CLI::Range(0.0, 100.0))
      ->check([](const std::string& word) {
        return std::isnan(std::strtod(word.c_str(), nullptr)) ? "not a number" : "";
      });
  verb->add_option("--seed", request.text.seed, "Another seed gives another text");
}

void add_speed(CLI::App& app, Request& request) {
  CLI::App* verb = add_verb(app, "speed", "How fast finished runs were, from their records",
                            Verb::speed, request);
  verb->add_option("RUN_DIR", request.speed.run_directories, "The runs' directories")->required();
  verb->add_option("--warmup", request.speed.warmup_steps, "Steps left out at the beginning")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--h5", request.h5, "Write the rows into this new file as well");
  const auto take = [&request](const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const auto equals = word.rfind('=');
      double goal = 0;
      if (equals == std::string::npos ||
          !CLI::detail::lexical_cast(word.substr(equals + 1), goal) || !(goal > 0))
        throw CLI::ValidationError("--goal", "not NAME=TOKENS_PER_S: " + word);
      request.speed.goals.emplace_back(word.substr(0, equals), goal);
    }
  };
  verb->add_option_function<std::vector<std::string>>("--goal", take,
                                                      "Of the run of this run.name");
}

void add_help(CLI::App& app, Request& request) {
  CLI::App* verb = add_verb(app, "help", "Explain the keys of a deck", Verb::help, request);
  verb->add_option("TOPIC", request.topic, "deck")->required()->check(CLI::IsMember({"deck"}));
  verb->add_option("KEY", request.key, "A section or key; without it, all of them");
}

/// An option that takes words of `table`, which pairs values and their words, and hands over the
/// values.
template <class Table, class Take>
CLI::Option* add_choice(
    CLI::App& verb, const char* option, const char* help, const Table& table, Take take) {
  std::vector<std::string> known;
  for (const auto& [value, word] : table) known.emplace_back(word);
  const auto translate = [&table, take](const std::vector<std::string>& words) {
    std::vector<std::remove_cvref_t<decltype(table[0].first)>> chosen;
    for (const std::string& asked : words)
      for (const auto& [value, word] : table)
        if (asked == word)
          chosen.push_back(value);
    take(chosen);
  };
  return verb.add_option_function<std::vector<std::string>>(option, translate, help)
      ->check(CLI::IsMember(known));
}

void add_reduce(CLI::App& verb, comm::BenchRequest& request) {
  static constexpr std::pair<DType, const char*> dtypes[] = {{DType::f32, "fp32"},
                                                             {DType::bf16, "bf16"}};
  verb.add_option("--bytes", request.bytes, "Sizes of a bucket")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add_choice(verb, "--transport", "As parallel.transport", EnumNames<comm::Transport>::table,
             [&request](const auto& chosen) { request.transports = chosen; })
      ->delimiter(',');
  add_choice(verb, "--reduction", "As parallel.reduction", EnumNames<comm::Reduction>::table,
             [&request](const auto& chosen) { request.reduction = chosen.back(); })
      ->expected(1);
  add_choice(verb, "--dtype", "fp32, bf16", dtypes, [&request](const auto& chosen) {
    request.dtypes = chosen;
  })->delimiter(',');
  verb.add_flag("!--no-baselines", request.baselines, "Without MPI's functions and memcpy");
}

void add_benches(CLI::App& app, Request& request) {
  CLI::App* benches = app.add_subcommand("bench", "One part alone, in seconds");
  benches->require_subcommand(1);
  const auto add = [&](const char* word, const char* help, Verb verb) {
    CLI::App* bench = add_verb(*benches, word, help, verb, request);
    bench->add_option("--json", request.json, "Write the rows into this new file as well");
    bench->add_option("--repetitions", request.repetitions, "A row is the median of so many")
        ->check(CLI::Range(1, 100000));
    return bench;
  };
  add_reduce(*add("reduce", "Collectives beside MPI's own, under mpirun", Verb::bench_reduce),
             request.reduce);
  add_deck(*add("engine", "A step at one rank beside the same step without the engine",
                Verb::bench_engine),
           request)
      ->required();
  CLI::App* shards = add("shards", "Finding every shard's address, with and without the cache",
                         Verb::bench_shards);
  add_deck(*shards, request)->required();
  add_ranks(*shards, request);
  CLI::App* pool = add("pool", "A lease of scratch memory beside allocating it", Verb::bench_pool);
  pool->add_option("--bytes", request.pool.bytes, "Sizes")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1} << 34));
  pool->add_option("--device", request.device, "cpu, or the first GPU: cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  add_deck(
      *add("matmul", "The matrix products of a deck, alone and under mpirun", Verb::bench_matmul),
      request);
  add_deck(*add("ops", "Every operation of a deck's step, alone and under mpirun", Verb::bench_ops),
           request);
}

}  // namespace

Request read_words(int argc, char** argv) {
  Request request;
  CLI::App app{"trireme: data-parallel GPT training for MPI clusters", "trireme"};
  app.require_subcommand(1);
  app.set_version_flag("--version");
  add_check(app, request);
  add_plan(app, request);
  add_verify(app, request);
  add_sample(app, request);
  add_speed(app, request);
  add_help(app, request);
  add_benches(app, request);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    request.verb = Verb::version;
  } catch (const CLI::CallForHelp&) {
    request.verb = Verb::usage;
  } catch (const CLI::ParseError& problem) {
    request.verb = Verb::none;
    request.mistake = problem.what();
  }
  return request;
}

}  // namespace trireme
