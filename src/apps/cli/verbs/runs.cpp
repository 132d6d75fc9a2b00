// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "files/file_lock.hpp"

#include "record/run/run_record.hpp"
#include "record/run/run_requests.hpp"

#include "cli/checkpoint_table.hpp"
#include "cli/options.hpp"
#include "cli/speed_table.hpp"
#include "cli/verb.hpp"

namespace trireme::cli {
namespace {

struct StopOptions {
  std::string run_directory;
  bool now = false;
};

ExitCode request_of_run(const std::string& run_directory,
                        record::RunRequest request,
                        const char* what) {
  const std::string holder = record::ask_run(run_directory, request);
  print(fmt::format(
      "Asked the run in {} ({}) to {}. The run removes {} when it accepts the request.\n",
      run_directory, holder, what, record::file_of(request)));
  return ExitCode::done;
}

}  // namespace

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

Action declare_record(CLI::App& command) {
  const auto directory = std::make_shared<std::string>();
  command.add_option("RUN_DIR", *directory, "The run directory.")->required();
  return [directory](Arguments) {
    record::expect_record(*directory);
    files::FileLock lock(*directory + "/lock", "write run.h5: ");
    const auto taken = lock.take_alone();
    if (taken == files::Taken::by_another)
      throw UserError(Place{*directory},
                      fmt::format("the directory is in use by {}, which writes run.h5 itself",
                                  lock.holder("a run")));
    if (taken == files::Taken::not_supported)
      error_line(
          "warning: {} cannot be locked on this file system: if {} still writes its record, run.h5 "
          "will be incomplete. Then run this command again after it has ended",
          *directory, lock.holder("a run"));
    for (const std::string& line : record::rebuild_run_file(*directory)) print(line + "\n");
    return ExitCode::done;
  };
}

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

Action declare_stop(CLI::App& command) {
  const auto options = std::make_shared<StopOptions>();
  command.add_option("RUN_DIR", options->run_directory, "The run directory.")->required();
  command.add_flag(
      "--now", options->now,
      "Stop immediately without a checkpoint. The steps since the newest checkpoint are lost.");
  return [options](Arguments) {
    return options->now ? request_of_run(options->run_directory, record::RunRequest::stop_now,
                                         "stop immediately without a checkpoint, with exit code 76")
                        : request_of_run(options->run_directory, record::RunRequest::stop,
                                         "save a checkpoint and stop with exit code 76");
  };
}

Action declare_save(CLI::App& command) {
  const auto options = std::make_shared<StopOptions>();
  command.add_option("RUN_DIR", options->run_directory, "The run directory.")->required();
  return [options](Arguments) {
    return request_of_run(options->run_directory, record::RunRequest::save,
                          "save a checkpoint after its current step and continue");
  };
}

}  // namespace trireme::cli
