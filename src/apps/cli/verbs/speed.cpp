// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/new_file.hpp"
#include "cli/speed_table.hpp"
#include "cli/verbs/declarations.hpp"

namespace trireme::cli {

Action declare_speed(CLI::App& command) {
  struct Options {
    SpeedRequest speed;
    std::string h5;
  };
  const auto options = std::make_shared<Options>();
  command.add_option("RUN_DIR", options->speed.run_directories, "Run directories.")->required();
  command
      .add_option("--warmup", options->speed.warmup_steps,
                  "Number of first steps to ignore. Default: 1.")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--h5", options->h5,
                     "Also write the rows to this HDF5 file, which must not exist.");
  const auto take = [&speed = options->speed](const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const auto equals = word.rfind('=');
      double goal = 0;
      if (equals == std::string::npos ||
          !CLI::detail::lexical_cast(word.substr(equals + 1), goal) || !(goal > 0))
        throw CLI::ValidationError("--goal", "expected NAME=TOKENS_PER_S, found " + word);
      speed.goals.emplace_back(word.substr(0, equals), goal);
    }
  };
  command.add_option_function<std::vector<std::string>>(
      "--goal", take, "Goal in tokens/s for the run with this run.name, as NAME=TOKENS_PER_S.");
  return [options](Arguments) {
    expect_new_file(options->h5);
    const auto rows = speed_rows(options->speed);
    if (!options->h5.empty())
      write_speed(options->h5, rows);
    print(speed_table(rows));
    return ExitCode::done;
  };
}

}  // namespace trireme::cli
