// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "base/error_line.hpp"

#include "comm/control/together.hpp"

#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verb.hpp"
#include "doctor/report.hpp"

namespace trireme::cli {

Action declare_doctor(CLI::App& command) {
  struct Options {
    doctor::Request request;
    std::int64_t threads = 0;
    std::string json;
  };
  const auto options = std::make_shared<Options>();
  command
      .add_option("--directory", options->request.directory,
                  "Directory for checkpoints. Its speed is measured with temporary files for a few "
                  "seconds.")
      ->capture_default_str();
  command
      .add_option("--threads", options->threads,
                  "Threads per rank. Default: the rank's share of the cores of its host.")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}));
  add_json(command, options->json);
  return [options](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) {
      if (options->threads > 0)
        options->request.threads.value = options->threads;
      comm::on_first_rank(world, [&] { expect_new_file(options->json); });
      const doctor::Report report = doctor::examine(world, options->request);
      comm::on_first_rank(world, [&] {
        give_result(doctor::report_text(report), options->json, doctor::report_json(report));
        for (const doctor::Problem& problem : report.problems)
          error_line("error: {}", doctor::problem_text(problem));
      });
      const ExitCode code = doctor::exit_code_of(report.problems);
      if (code > ExitCode::user_error)
        world.abort(code);  // like under_mpi() after such a failure
      return code;
    });
  };
}

}  // namespace trireme::cli
