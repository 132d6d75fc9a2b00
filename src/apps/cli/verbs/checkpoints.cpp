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
  struct Asked {
    std::string run_directory;
    std::string json;
    bool verify = false;
  };
  const auto asked = std::make_shared<Asked>();
  command.add_option("RUN_DIR", asked->run_directory, "The run's directory")->required();
  add_json(command, asked->json);
  command.add_flag("--verify", asked->verify,
                   "Read every byte against its hash; exit code 2 when one is damaged, 3 when one "
                   "cannot be read");
  return [asked](Arguments) {
    expect_new_file(asked->json);
    const auto table = checkpoint_table(asked->run_directory, asked->verify);
    give_result(checkpoint_text(table), asked->json, checkpoint_json(table));
    for (const std::string& line : damage_lines(table))
      error_line("{}: {}", asked->verify ? "error" : "warning", line);
    return asked->verify ? checkpoint_verdict(table) : ExitCode::done;
  };
}

}  // namespace trireme::cli
