// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "record/run/run_requests.hpp"

#include "cli/verbs/declarations.hpp"

namespace trireme::cli {
namespace {

struct StopWords {
  std::string run_directory;
  bool now = false;
};

ExitCode request_of_run(const std::string& run_directory,
                        record::RunRequest request,
                        const char* what) {
  const std::string holder = record::ask_run(run_directory, request);
  print(fmt::format("Asked the run in {} ({}) to {}. It removes {} when it has noticed.\n",
                    run_directory, holder, what, record::file_of(request)));
  return ExitCode::done;
}

}  // namespace

Action declare_stop(CLI::App& command) {
  const auto asked = std::make_shared<StopWords>();
  command.add_option("RUN_DIR", asked->run_directory, "The run's directory")->required();
  command.add_flag("--now", asked->now,
                   "End at once, without a checkpoint: the steps since the newest one are lost");
  return [asked](Arguments) {
    return asked->now ? request_of_run(asked->run_directory, record::RunRequest::stop_now,
                                       "end at once, without a checkpoint")
                      : request_of_run(asked->run_directory, record::RunRequest::stop,
                                       "save a checkpoint and stop");
  };
}

Action declare_save(CLI::App& command) {
  const auto asked = std::make_shared<StopWords>();
  command.add_option("RUN_DIR", asked->run_directory, "The run's directory")->required();
  return [asked](Arguments) {
    return request_of_run(asked->run_directory, record::RunRequest::save,
                          "save a checkpoint after its current step and continue");
  };
}

}  // namespace trireme::cli
