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
  struct Asked {
    SpeedRequest speed;
    std::string h5;
  };
  const auto asked = std::make_shared<Asked>();
  command.add_option("RUN_DIR", asked->speed.run_directories, "The runs' directories")->required();
  command.add_option("--warmup", asked->speed.warmup_steps, "Steps left out at the beginning")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--h5", asked->h5, "Write the rows into this new file as well");
  const auto take = [&speed = asked->speed](const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const auto equals = word.rfind('=');
      double goal = 0;
      if (equals == std::string::npos ||
          !CLI::detail::lexical_cast(word.substr(equals + 1), goal) || !(goal > 0))
        throw CLI::ValidationError("--goal", "not NAME=TOKENS_PER_S: " + word);
      speed.goals.emplace_back(word.substr(0, equals), goal);
    }
  };
  command.add_option_function<std::vector<std::string>>("--goal", take,
                                                        "Of the run of this run.name");
  return [asked](Arguments) {
    expect_new_file(asked->h5);
    const auto rows = speed_rows(asked->speed);
    if (!asked->h5.empty())
      write_speed(asked->h5, rows);
    print(speed_table(rows));
    return ExitCode::done;
  };
}

}  // namespace trireme::cli
