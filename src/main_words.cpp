// SPDX-License-Identifier: Apache-2.0
#include "main_words.hpp"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

#include "job/commands.hpp"
#include "job/plan_command.hpp"
#include "job/survey.hpp"

namespace trireme {

const char* const usage =
    "usage: trireme DECK [section.key=value ...]          train; start it with mpirun or srun\n"
    "       trireme check DECK [section.key=value ...] [--ranks N]\n"
    "       trireme plan DECK [section.key=value ...] [--ranks N] [--json FILE]\n"
    "       trireme verify DECK [section.key=value ...] [--steps K]    under mpirun: is every "
    "switch\n"
    "                                                     invisible in the numbers?\n"
    "       trireme sample RUN_DIR [--prompt TEXT] [--tokens K] [--temperature T] [--seed S]\n"
    "       trireme bench reduce [--bytes N,...] [--transport T,...] [--dtype fp32,bf16]\n"
    "                            [--reduction R] [--no-baselines]      under mpirun\n"
    "       trireme bench engine DECK [section.key=value ...]     at one rank\n"
    "       trireme bench shards DECK [section.key=value ...] [--ranks N]\n"
    "       trireme bench pool [--bytes N,...]     all: [--repetitions K] [--json FILE]\n"
    "       trireme bench matmul|ops [DECK] [section.key=value ...]        under mpirun or alone\n"
    "       trireme help deck [SECTION | KEY]\n"
    "       trireme --version | --help\n";

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw StorageError("file system", "write standard output", std::strerror(errno), __FILE__,
                       __LINE__);
}

namespace {

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
      ->check(CLI::Range(0.0, 100.0))
      ->check([](const std::string& word) {
        return std::isnan(std::strtod(word.c_str(), nullptr)) ? "not a number" : "";
      });
  verb->add_option("--seed", request.text.seed, "Another seed gives another text");
  verb->callback([&request] {
    Log log(false, "trireme");
    print(train::for_terminal(train::sample_run(request.run_directory, request.text, log)) + "\n");
  });
}

}  // namespace

CLI::App* add_verbs(CLI::App& app, Request& request) {
  describe_check(app, request);
  describe_plan(app, request);
  CLI::App* verify = describe_verify(app, request);
  describe_sample(app, request);
  describe_help(app, request);
  return verify;
}

}  // namespace trireme
