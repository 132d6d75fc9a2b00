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
#include "cli/check_command.hpp"
#include "cli/options.hpp"
#include "cli/plan_command.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verbs/declarations.hpp"
#include "deck/survey.hpp"

namespace trireme::cli {

Action declare_check(CLI::App& command) {
  struct Asked {
    DeckArguments deck;
    int ranks = 1;
  };
  const auto asked = std::make_shared<Asked>();
  add_deck(command, asked->deck)->required();
  add_ranks(command, asked->ranks);
  return [asked](Arguments) {
    print(check_command(asked->deck.path, asked->deck.overrides, circumstances_of(asked->ranks)));
    return ExitCode::done;
  };
}

Action declare_plan(CLI::App& command) {
  struct Asked {
    DeckArguments deck;
    std::vector<int> ranks = {1};
    int hosts = 1;
    PlanOutput output;
  };
  const auto asked = std::make_shared<Asked>();
  add_deck(command, asked->deck)->required();
  command
      .add_option(
          "--ranks", asked->ranks,
          "Ranks that the run will have; with --machine several, N,N,...: the first is that "
          "of the plan")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 20));
  command.add_option(
      "--machine", asked->output.machine_path,
      "Predict the step on more and more ranks from this file of `bench reduce --fit`");
  command
      .add_option("--hosts", asked->hosts, "Hosts that they will be on, consecutive ranks together")
      ->check(CLI::Range(1, 1 << 20));
  add_json(command, asked->output.json_path);
  command.add_flag("--schedule", asked->output.schedule,
                   "Draw the learning rate over the run as well");
  return [asked](Arguments) {
    if (asked->ranks.size() > 1 && asked->output.machine_path.empty())
      throw UserError("--ranks: several numbers of ranks need --machine");
    asked->output.scaling_ranks = asked->ranks;
    print(plan_command(asked->deck.path, asked->deck.overrides,
                       circumstances_of(asked->ranks.front(), asked->hosts), asked->output));
    return ExitCode::done;
  };
}

Action declare_verify(CLI::App& command) {
  struct Asked {
    DeckArguments deck;
    std::int64_t steps = 3;
  };
  const auto asked = std::make_shared<Asked>();
  add_deck(command, asked->deck)->required();
  command.add_option("--steps", asked->steps, "Steps under each combination")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000}));
  return [asked](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) {
      return with_deck(world, asked->deck, [&](const session::Job& job, Log& log) {
        const auto verified = bench::verify(job, world, log, {asked->steps, {}});
        if (verified.difference.empty())
          return ExitCode::done;
        if (world.rank() == 0)
          error_line("error: combination {} differs: {}", verified.combinations,
                     verified.difference);
        return ExitCode::contract;
      });
    });
  };
}

Action declare_help(CLI::App& command) {
  struct Asked {
    std::string topic, key;
  };
  const auto asked = std::make_shared<Asked>();
  command.add_option("TOPIC", asked->topic, "deck")->required()->check(CLI::IsMember({"deck"}));
  command.add_option("KEY", asked->key, "A section or key; without it, all of them");
  return [asked](Arguments) {
    print(deck::help(asked->key));
    return ExitCode::done;
  };
}

ExitCode train_deck(Arguments arguments) {
  const DeckArguments deck{arguments.argv[1],
                           {arguments.argv + 2, arguments.argv + arguments.argc}};
  return under_mpi_until_stopped(arguments, "", [&](comm::World& world, const Stops& stops) {
    return with_deck(world, deck, [&](const session::Job& job, Log& log) {
      return train::train(job, world, log, stops.signals, stops.started_at, bench::ceiling_of);
    });
  });
}

}  // namespace trireme::cli
