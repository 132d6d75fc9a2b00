// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "base/error_line.hpp"

#include "cli/checkpoint_table.hpp"
#include "cli/new_file.hpp"
#include "cli/options.hpp"
#include "cli/verbs/declarations.hpp"

namespace trireme::cli {

Action declare_checkpoints(CLI::App& command) {
  struct Options {
    std::string run_directory;
    std::string json;
    bool verify = false;
  };
  const auto options = std::make_shared<Options>();
  command.add_option("RUN_DIR", options->run_directory, "The run directory.")->required();
  add_json(command, options->json);
  command.add_flag("--verify", options->verify,
                   "Compare every byte with its hash. Exit code 2 if a checkpoint is damaged, 3 if "
                   "one cannot be read.");
  return [options](Arguments) {
    expect_new_file(options->json);
    const auto table = checkpoint_table(options->run_directory, options->verify);
    give_result(checkpoint_text(table), options->json, checkpoint_json(table));
    for (const std::string& line : damage_lines(table))
      error_line("{}: {}", options->verify ? "error" : "warning", line);
    return options->verify ? checkpoint_verdict(table) : ExitCode::done;
  };
}

}  // namespace trireme::cli
