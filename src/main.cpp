// SPDX-License-Identifier: Apache-2.0
// The front door: words of the command line, one verb, one exit code. Every mistake and failure
// behind the words ends in verdict_of(): its lines go to standard error, its code to the shell.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/error_line.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

#include "ops/matmul.hpp"

#include "train/text_sample.hpp"

#include "job/commands.hpp"
#include "job/plan_command.hpp"
#include "job/survey.hpp"

#include "main_bench.hpp"
#include "main_train.hpp"
#include "main_words.hpp"
#include "report/speed_table.hpp"

namespace trireme {
namespace {

/// A first word that is no verb and no option names a deck. Throws UserError when no such file is
/// there and the word looks like a verb.
bool trains(int argc, char** argv) {
  constexpr std::string_view verbs[] = {"check", "plan",  "verify", "sample",
                                        "speed", "bench", "help"};
  if (argc < 2 || argv[1][0] == '-' ||
      std::ranges::find(verbs, std::string_view(argv[1])) != std::end(verbs))
    return false;
  if (!std::filesystem::exists(argv[1]))
    if (const auto verb = nearest(argv[1], {std::begin(verbs), std::end(verbs)}))
      throw UserError(
          fmt::format("'{}' is neither a verb nor a deck; did you mean '{}'?", argv[1], *verb));
  return true;
}

job::Circumstances circumstances_of(const Request& request) {
  return {.ranks = request.ranks, .cuda = build_info().has_cuda, .hosts = request.hosts};
}

ExitCode run(int argc, char** argv) {
  if (trains(argc, argv)) {
    const std::vector<std::string> overrides(argv + 2, argv + argc);
    return train_command(argc, argv, argv[1], overrides);
  }
  const Request request = read_words(argc, argv);
  switch (request.verb) {
    case Verb::none:
      error_line("error: {}", request.mistake);
      std::fputs(usage_text, stderr);
      return ExitCode::user_error;
    case Verb::usage:
      print(usage_text);
      break;
    case Verb::version:
      print(build_info_text(ops::onednn_version()));
      break;
    case Verb::check:
      print(job::check_command(request.deck, request.overrides, circumstances_of(request)));
      break;
    case Verb::plan:
      print(job::plan_command(request.deck, request.overrides, circumstances_of(request),
                              request.json));
      break;
    case Verb::verify:
      return verify_command(argc, argv, request.deck, request.overrides, request.steps);
    case Verb::sample: {
      Log log(false, "trireme");
      print(train::for_terminal(train::sample_run(request.run_directory, request.text, log)) +
            "\n");
      break;
    }
    case Verb::speed: {
      job::expect_new_file(request.h5);
      const auto rows = report::speed_rows(request.speed);
      if (!request.h5.empty())
        report::write_speed(request.h5, rows);
      print(report::speed_table(rows));
      break;
    }
    case Verb::help:
      print(job::help(request.key));
      break;
    default:
      return bench_command(argc, argv, request);
  }
  return ExitCode::done;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  try {
    return static_cast<int>(trireme::run(argc, argv));
  } catch (const std::exception& problem) {
    const trireme::Verdict verdict = trireme::verdict_of(problem);
    for (const std::string& line : verdict.lines) trireme::error_line("{}", line);
    return static_cast<int>(verdict.code);
  }
}
