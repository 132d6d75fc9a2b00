// SPDX-License-Identifier: Apache-2.0
#include "tune/tune.hpp"

#include <cstdint>
#include <memory>
#include <string>

#include "base/build_info.hpp"
#include "files/output_file.hpp"

#include "comm/control/together.hpp"

#include "train/run_end.hpp"

#include "cli/new_file.hpp"
#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verbs/declarations.hpp"
#include "deck/edit.hpp"
#include "deck/job.hpp"
#include "tune/tune_report.hpp"

namespace trireme::cli {
namespace {

struct Asked {
  DeckArguments deck;
  tune::TuneRequest request;
  double gib = 0;
  std::string output, json;
};

std::string build_text() {
  const BuildInfo& build = build_info();
  return fmt::format("trireme {} at {}", build.version, build.git_revision);
}

/// Before anything is measured: whether the result could be written.
void expect_writable(const Asked& asked, const SharedDeck& shared) {
  expect_new_file(asked.json);
  expect_new_file(asked.output);
  if (!asked.output.empty() &&
      !deck::with_values(shared.bytes, tune::values_of(tune::setting_of(shared.deck.config))))
    throw UserError(Place{asked.deck.path, 0, 0},
                    "this deck's layout is not one that --output can write other values into; "
                    "without --output they are printed");
}

void give(const Asked& asked, const SharedDeck& shared, const tune::Tuning& tuning) {
  give_result(tune::tuning_table(tuning), asked.json, tune::tuning_json(tuning));
  if (asked.output.empty())
    return;
  const auto text = tune::tuned_deck(tuning, shared.bytes, {build_text(), asked.deck.overrides});
  TRIREME_EXPECT(text, "no layout for {}",
                 tune::words_of(tune::values_to_write(tuning, shared.bytes)));
  files::write_new_file(asked.output, *text);
}

}  // namespace

Action declare_tune(CLI::App& command) {
  const auto asked = std::make_shared<Asked>();
  add_deck(command, asked->deck)->required();
  command.add_option("--output", asked->output, "Write the deck with the chosen values there");
  command
      .add_option("--seconds", asked->request.seconds,
                  "About how long to measure; longer where a few steps take longer")
      ->check(CLI::Range(1.0, 1e6));
  command
      .add_option("--memory", asked->gib,
                  "GiB that a rank may take; its part of what the hosts have free, unless given")
      ->check(CLI::Range(1e-6, 1e6));
  command.add_flag("--same-bits", asked->request.same_bits, "Leave out what may round otherwise");
  add_json(command, asked->json);
  return [asked](Arguments arguments) {
    asked->request.memory_bytes = static_cast<std::int64_t>(asked->gib * 0x1p30);
    const auto measure = [&](comm::World& world, const Stops& stops) {
      return with_shared_deck(world, asked->deck, [&](const SharedDeck& shared, Log& log) {
        train::limit_of(deck::job_of(shared.deck), stops.started_at, world, log, stops.signals);
        comm::on_first_rank(world, [&] { expect_writable(*asked, shared); });
        const tune::Tuning tuning =
            tune::tune(shared.deck, shared.circumstances, world, log, asked->request);
        comm::on_first_rank(world, [&] { give(*asked, shared, tuning); });
        return ExitCode::done;
      });
    };
    return under_mpi_until_stopped(arguments, "trireme tune", measure);
  };
}

}  // namespace trireme::cli
