// SPDX-License-Identifier: Apache-2.0
#include "tune/find_rate.hpp"

#include <memory>
#include <string>

#include "comm/control/together.hpp"

#include "train/trainer.hpp"

#include "cli/new_file.hpp"
#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verbs/declarations.hpp"

namespace trireme::cli {

Action declare_find_rate(CLI::App& command) {
  struct Options {
    DeckArguments deck;
    tune::SweepRequest sweep;
    std::string json;
  };
  const auto options = std::make_shared<Options>();
  tune::SweepRequest& sweep = options->sweep;
  add_deck(command, options->deck)->required();
  command.add_option("--from", sweep.low, "Learning rate of the first step. Default: 1e-6.")
      ->check(CLI::PositiveNumber);
  command.add_option("--to", sweep.high, "Learning rate of the last step. Default: 1.")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--steps", sweep.steps,
                  "Number of steps, each with a batch of the deck. Default: 100.")
      ->check(CLI::Range(std::int64_t{10}, std::int64_t{100'000}));
  command
      .add_option("--stop-above", sweep.multiple,
                  "Stop when the smoothed loss exceeds its minimum by this factor. Default: 1.5.")
      ->check(CLI::Range(1.01, 1e9));
  add_json(command, options->json);
  return [options](Arguments arguments) {
    const auto sweep_rates = [&](comm::World& world, const Stops& stops) {
      return with_deck(world, options->deck, [&](const session::Job& job, Log& log) {
        const auto clock = train::limit_time(job, stops.started_at, world, log, stops.signals);
        comm::on_first_rank(world, [&] { expect_new_file(options->json); });
        const tune::RateCurve curve = tune::find_rate(job, world, log, options->sweep);
        comm::on_first_rank(world, [&] {
          give_result(tune::rate_table(curve), options->json, tune::rate_json(curve));
        });
        return ExitCode::done;
      });
    };
    return under_mpi_until_stopped(arguments, "trireme find-rate", sweep_rates);
  };
}

}  // namespace trireme::cli
