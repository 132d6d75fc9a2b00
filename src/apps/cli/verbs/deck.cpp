// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error_line.hpp"

#include "comm/control/world.hpp"

#include "train/trainer.hpp"

#include "bench/ceiling.hpp"
#include "bench/verify.hpp"
#include "cli/deck_reports.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verb.hpp"
#include "deck/survey.hpp"

namespace trireme::cli {

Action declare_check(CLI::App& command) {
  struct Options {
    DeckArguments deck;
    int ranks = 1;
    std::string key;
  };
  const auto options = std::make_shared<Options>();
  add_deck(command, options->deck)->required();
  add_ranks(command, options->ranks);
  command.add_option("--value", options->key,
                     "Print the value of this key instead, for scripts. Checks only the deck.");
  return [options](Arguments) {
    if (!options->key.empty()) {
      print(value_of(options->deck, options->key, circumstances_of(options->ranks)));
      return ExitCode::done;
    }
    print(check_command(options->deck, circumstances_of(options->ranks)));
    return ExitCode::done;
  };
}

Action declare_plan(CLI::App& command) {
  struct Options {
    DeckArguments deck;
    std::vector<int> ranks = {1};
    int hosts = 1;
    PlanOutput output;
  };
  const auto options = std::make_shared<Options>();
  add_deck(command, options->deck)->required();
  command
      .add_option("--ranks", options->ranks,
                  "Number of ranks of the run. Default: 1. With --machine several, separated by "
                  "commas; the plan is for the first.")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 20));
  command.add_option(
      "--machine", options->output.machine_path,
      "Predict the time of a step with this machine file, made by `bench reduce --fit`.");
  command
      .add_option("--hosts", options->hosts,
                  "Number of hosts, with consecutive ranks on each. Default: 1.")
      ->check(CLI::Range(1, 1 << 20));
  add_json(command, options->output.json_path);
  command.add_flag("--schedule", options->output.schedule,
                   "Also draw the learning rate over the run.");
  return [options](Arguments) {
    if (options->ranks.size() > 1 && options->output.machine_path.empty())
      throw UserError("--ranks: several numbers of ranks require --machine");
    options->output.scaling_ranks = options->ranks;
    print(plan_command(options->deck, circumstances_of(options->ranks.front(), options->hosts),
                       options->output));
    return ExitCode::done;
  };
}

Action declare_verify(CLI::App& command) {
  struct Options {
    DeckArguments deck;
    std::int64_t steps = 3;
  };
  const auto options = std::make_shared<Options>();
  add_deck(command, options->deck)->required();
  command
      .add_option("--steps", options->steps, "Number of steps with each combination. Default: 3.")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000}));
  return [options](Arguments arguments) {
    const auto verify = [&](comm::World& world, const SharedDeck& shared, Log& log) {
      const auto verified = bench::verify(shared.job, world, log, {options->steps, {}});
      if (verified.difference.empty())
        return ExitCode::done;
      if (world.rank() == 0)
        error_line("error: combination {} differs: {}", verified.combinations, verified.difference);
      return ExitCode::contract;
    };
    return with_deck_until_stopped(arguments, "trireme verify", options->deck, verify);
  };
}

Action declare_help(CLI::App& command) {
  struct Options {
    std::string topic, key;
  };
  const auto options = std::make_shared<Options>();
  command.add_option("TOPIC", options->topic, "Topic: deck.")
      ->required()
      ->check(CLI::IsMember({"deck"}));
  command.add_option("KEY", options->key, "A section or key. Default: all.");
  return [options](Arguments) {
    print(deck::help(options->key));
    return ExitCode::done;
  };
}

ExitCode train_deck(Arguments arguments) {
  const DeckArguments deck{arguments.argv[1],
                           {arguments.argv + 2, arguments.argv + arguments.argc}};
  session::MemoryCopies copies;
  const auto train = [&](comm::World& world, const SharedDeck& shared, Log& log) {
    world.continues_after_loss = shared.job.parallel.on_lost_rank == reduce::OnLostRank::shrink &&
                                 comm::why_losses_end_all_ranks().empty();
    return train::train(shared.job, world, log, *shared.signals, bench::ceiling_of, copies);
  };
  return with_deck_until_stopped(arguments, "", deck, train);
}

}  // namespace trireme::cli
