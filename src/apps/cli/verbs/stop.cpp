// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "record/run/run_requests.hpp"

#include "cli/verbs/declarations.hpp"

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

Action declare_stop(CLI::App& command) {
  const auto options = std::make_shared<StopOptions>();
  command.add_option("RUN_DIR", options->run_directory, "The run directory.")->required();
  command.add_flag(
      "--now", options->now,
      "Stop immediately without a checkpoint. The steps since the newest checkpoint are lost.");
  return [options](Arguments) {
    return options->now ? request_of_run(options->run_directory, record::RunRequest::stop_now,
                                         "stop immediately without a checkpoint")
                        : request_of_run(options->run_directory, record::RunRequest::stop,
                                         "save a checkpoint and stop");
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
