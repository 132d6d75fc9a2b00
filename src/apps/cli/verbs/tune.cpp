// SPDX-License-Identifier: Apache-2.0
#include "tune/tune.hpp"

#include <cstdint>
#include <memory>
#include <string>

#include "base/build_info.hpp"
#include "files/output_file.hpp"

#include "comm/control/together.hpp"

#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verb.hpp"
#include "deck/edit.hpp"
#include "tune/rate_curve.hpp"
#include "tune/tune_report.hpp"

namespace trireme::cli {
namespace {

struct Options {
  DeckArguments deck;
  tune::TuneRequest request;
  double gib = 0;
  std::string output, json;
};

std::string build_text() {
  const BuildInfo& build = build_info();
  return fmt::format("trireme {} at {}", build.version, build.git_revision);
}

/// Checks before measuring whether the result can be written.
void expect_writable(const Options& options, const SharedDeck& shared) {
  expect_new_file(options.json);
  expect_new_file(options.output);
  if (!options.output.empty() &&
      !deck::with_values(shared.bytes, tune::values_of(shared.deck.config)))
    throw UserError(Place{options.deck.path},
                    "--output cannot change values in a deck with this layout. Run without "
                    "--output to print the values.");
}

void give(const Options& options, const SharedDeck& shared, const tune::Tuning& tuning) {
  give_result(tune::tuning_table(tuning), options.json, tune::tuning_json(tuning));
  if (options.output.empty())
    return;
  const auto text = tune::tuned_deck(tuning, shared.bytes, build_text(), options.deck.overrides);
  TRIREME_EXPECT(text, "no layout for the result in {}", options.deck.path);
  files::write_new_file(options.output, *text);
}

}  // namespace

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
      ->check(CLI::Range(1.01, 1e9))
      ->check(is_number);
  add_json(command, options->json);
  return [options](Arguments arguments) {
    const auto sweep_rates = [&](comm::World& world, const SharedDeck& shared, Log& log) {
      comm::on_first_rank(world, [&] { expect_new_file(options->json); });
      const tune::RateCurve curve = tune::find_rate(shared.job, world, log, options->sweep);
      comm::on_first_rank(world, [&] {
        give_result(tune::rate_table(curve), options->json, tune::rate_json(curve));
      });
      return ExitCode::done;
    };
    return with_deck_until_stopped(arguments, "trireme find-rate", options->deck, sweep_rates);
  };
}

Action declare_tune(CLI::App& command) {
  const auto options = std::make_shared<Options>();
  add_deck(command, options->deck)->required();
  command.add_option("--output", options->output,
                     "Write the deck with the chosen values to this file, which must not exist.");
  command
      .add_option("--seconds", options->request.seconds,
                  "Approximate time for measurements in seconds. A few steps are measured in any "
                  "case. Default: 120.")
      ->check(CLI::Range(1.0, 1e6))
      ->check(is_number);
  command
      .add_option(
          "--memory", options->gib,
          "Maximum memory per rank in GiB. Default: an equal share of the free memory of its host.")
      ->check(CLI::Range(1e-6, 1e6))
      ->check(is_number);
  command.add_flag("--same-bits", options->request.same_bits,
                   "Only try settings that give the same bits as the deck.");
  add_json(command, options->json);
  return [options](Arguments arguments) {
    options->request.memory_bytes = static_cast<std::int64_t>(options->gib * 0x1p30);
    const auto measure = [&](comm::World& world, const SharedDeck& shared, Log& log) {
      comm::on_first_rank(world, [&] { expect_writable(*options, shared); });
      const tune::Tuning tuning =
          tune::tune(shared.deck, shared.circumstances, world, log, options->request);
      comm::on_first_rank(world, [&] { give(*options, shared, tuning); });
      return ExitCode::done;
    };
    return with_deck_until_stopped(arguments, "trireme tune", options->deck, measure);
  };
}

}  // namespace trireme::cli
