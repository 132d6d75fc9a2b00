// SPDX-License-Identifier: Apache-2.0
#include "doctor/doctor.hpp"

#include <memory>
#include <string>

#include "base/error_line.hpp"

#include "comm/control/together.hpp"

#include "cli/new_file.hpp"
#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verbs/declarations.hpp"

namespace trireme::cli {

Action declare_doctor(CLI::App& command) {
  struct Asked {
    doctor::Request request;
    std::int64_t threads = 0;
    std::string json;
  };
  const auto asked = std::make_shared<Asked>();
  command
      .add_option(
          "--directory", asked->request.directory,
          "Directory for checkpoints: test files are written for some seconds, then removed")
      ->capture_default_str();
  command.add_option("--threads", asked->threads, "Of each rank, as run.threads")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}));
  add_json(command, asked->json);
  return [asked](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) {
      if (asked->threads > 0)
        asked->request.threads.value = asked->threads;
      comm::on_first_rank(world, [&] { expect_new_file(asked->json); });
      const doctor::Report report = doctor::examine(world, asked->request);
      comm::on_first_rank(world, [&] {
        give_result(doctor::report_text(report), asked->json, doctor::report_json(report));
        for (const doctor::Problem& problem : report.problems)
          error_line("error: {}", doctor::problem_text(problem));
      });
      const ExitCode code = doctor::exit_code_of(report.problems);
      if (code > ExitCode::user_error)
        world.abort(code);  // as under_mpi() does after such a failure
      return code;
    });
  };
}

}  // namespace trireme::cli
