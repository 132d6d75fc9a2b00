// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.hpp"
#include "files/file_lock.hpp"

#include "record/run/run_record.hpp"

#include "cli/verbs/declarations.hpp"

namespace trireme::cli {

Action declare_record(CLI::App& command) {
  const auto directory = std::make_shared<std::string>();
  command.add_option("RUN_DIR", *directory, "The run directory.")->required();
  return [directory](Arguments) {
    record::expect_record(*directory);
    files::FileLock lock(*directory + "/lock", "write run.h5: ");
    if (lock.take_alone() == files::Taken::by_another)
      throw UserError(Place{*directory},
                      fmt::format("the directory is in use by {}, which writes run.h5 itself",
                                  lock.holder("a run")));
    for (const std::string& line : record::rebuild_run_file(*directory)) print(line + "\n");
    return ExitCode::done;
  };
}

}  // namespace trireme::cli
