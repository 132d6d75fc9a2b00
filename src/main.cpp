// SPDX-License-Identifier: Apache-2.0
// The front door: words of the command line, one verb, one exit code. Every mistake and failure
// ends in verdict_of(): its lines go to standard error, its code to the shell.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/build_info.hpp"
#include "base/error.hpp"

#include "train/text_sample.hpp"

#include "job/commands.hpp"
#include "job/plan_command.hpp"
#include "job/survey.hpp"

#include "main_bench.hpp"
#include "main_train.hpp"

namespace {

using namespace trireme;

constexpr const char* usage =
    "usage: trireme DECK [section.key=value ...]          train; start it with mpirun or srun\n"
    "       trireme check DECK [section.key=value ...] [--ranks N]\n"
    "       trireme plan DECK [section.key=value ...] [--ranks N] [--json FILE]\n"
    "       trireme verify DECK [section.key=value ...] [--steps K]    under mpirun: is every "
    "switch\n"
    "                                                     invisible in the numbers?\n"
    "       trireme sample RUN_DIR [--prompt TEXT] [--tokens K] [--temperature T] [--seed S]\n"
    "       trireme bench reduce [--bytes N,...] [--transport T,...] [--dtype fp32,bf16]\n"
    "                            [--reduction R] [--no-baselines]      under mpirun\n"
    "       trireme bench shards DECK [section.key=value ...] [--ranks N]\n"
    "       trireme bench pool [--bytes N,...]     all three: [--repetitions K] [--json FILE]\n"
    "       trireme help deck [SECTION | KEY]\n"
    "       trireme --version | --help\n";

/// What the words asked for.
struct Request {
  std::string deck;
  std::vector<std::string> overrides;
  int ranks = 1;
  std::string json;
  std::int64_t steps = 3;
  std::string topic;
  std::string key;
  std::string run_directory;
  train::TextRequest text{.prompt = "int main", .tokens = 256, .temperature = 0.8, .seed = 1};
};

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
}

/// The words that check and plan share.
CLI::App* add_deck_verb(CLI::App& app, const char* name, const char* help, Request& request) {
  CLI::App* verb = app.add_subcommand(name, help);
  verb->add_option("DECK", request.deck, "YAML file")->required();
  verb->add_option("OVERRIDES", request.overrides, "section.key=value, as on a run");
  verb->add_option("--ranks", request.ranks, "Ranks that the run will have")
      ->check(CLI::Range(1, 1 << 20));
  return verb;
}

job::Circumstances circumstances_of(const Request& request) {
  return {.ranks = request.ranks, .cuda = build_info().has_cuda};
}

void describe_check(CLI::App& app, Request& request) {
  add_deck_verb(app, "check", "Find every mistake in a deck; needs no MPI", request)
      ->callback([&request] {
        print(job::check_command(request.deck, request.overrides, circumstances_of(request)));
      });
}

void describe_plan(CLI::App& app, Request& request) {
  CLI::App* verb =
      add_deck_verb(app, "plan", "Buckets, padding, and the bytes that each rank holds", request);
  verb->add_option("--json", request.json, "Write the plan into this new file as well");
  verb->callback([&request] {
    print(job::plan_command(request.deck, request.overrides, circumstances_of(request),
                            request.json));
  });
}

CLI::App* describe_verify(CLI::App& app, Request& request) {
  CLI::App* verb = app.add_subcommand("verify", "Train under every switch and compare the bits");
  verb->add_option("DECK", request.deck, "YAML file")->required();
  verb->add_option("OVERRIDES", request.overrides, "section.key=value, as on a run");
  verb->add_option("--steps", request.steps, "Steps under each combination")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000}));
  return verb;
}

void describe_help(CLI::App& app, Request& request) {
  CLI::App* verb = app.add_subcommand("help", "Explain the keys of a deck");
  verb->add_option("TOPIC", request.topic, "deck")->required()->check(CLI::IsMember({"deck"}));
  verb->add_option("KEY", request.key, "A section or key; without it, all of them");
  verb->callback([&request] { print(job::help(request.key)); });
}

void describe_sample(CLI::App& app, Request& request) {
  CLI::App* verb = app.add_subcommand("sample", "Text from the newest checkpoint of a run");
  verb->add_option("RUN_DIR", request.run_directory, "The run's directory")->required();
  verb->add_option("--prompt", request.text.prompt, "What the text continues");
  verb->add_option("--tokens", request.text.tokens, "How many tokens")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  verb->add_option("--temperature", request.text.temperature, "0: the most likely token each time")
      ->check(CLI::Range(0.0, 100.0));
  verb->add_option("--seed", request.text.seed, "Another seed gives another text");
  verb->callback([&request] {
    Log log(false, "trireme");
    print(train::for_terminal(train::sample_run(request.run_directory, request.text, log)) + "\n");
  });
}

/// A first word that is no verb and no option names a deck.
bool trains(int argc, char** argv) {
  constexpr std::string_view verbs[] = {"check", "plan", "verify", "sample", "bench", "help"};
  return argc > 1 && argv[1][0] != '-' &&
         std::ranges::find(verbs, std::string_view(argv[1])) == std::end(verbs);
}

int run(int argc, char** argv) {
  if (trains(argc, argv)) {
    const std::vector<std::string> overrides(argv + 2, argv + argc);
    return static_cast<int>(train_command(argc, argv, argv[1], overrides));
  }
  CLI::App app{"trireme: data-parallel GPT training for MPI clusters", "trireme"};
  Request request;
  app.require_subcommand(1);
  app.set_version_flag("--version", build_info_text());
  describe_check(app, request);
  describe_plan(app, request);
  CLI::App* verify = describe_verify(app, request);
  describe_sample(app, request);
  describe_help(app, request);
  BenchVerb bench(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    print(build_info_text());
    return static_cast<int>(ExitCode::done);
  } catch (const CLI::CallForHelp&) {
    print(usage);
    return static_cast<int>(ExitCode::done);
  } catch (const CLI::ParseError& problem) {
    std::fprintf(stderr, "error: %s\n%s", problem.what(), usage);
    return static_cast<int>(ExitCode::user_error);
  }
  if (bench.asked())
    return static_cast<int>(bench.run(argc, argv));
  if (verify->parsed())
    return static_cast<int>(
        verify_command(argc, argv, request.deck, request.overrides, request.steps));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& problem) {
    const Verdict verdict = verdict_of(problem);
    for (const std::string& line : verdict.lines) std::fprintf(stderr, "%s\n", line.c_str());
    return static_cast<int>(verdict.code);
  }
}
