// SPDX-License-Identifier: Apache-2.0
// The front door: words of the command line, one verb, one exit code. Every mistake and failure
// ends in verdict_of(): its lines go to standard error, its code to the shell.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

#include "main_bench.hpp"
#include "main_train.hpp"
#include "main_words.hpp"

namespace {

using namespace trireme;

/// A first word that is no verb and no option names a deck. Throws UserError when no such file is
/// there and the word looks like a verb.
bool trains(int argc, char** argv) {
  constexpr std::string_view verbs[] = {"check", "plan", "verify", "sample", "bench", "help"};
  if (argc < 2 || argv[1][0] == '-' ||
      std::ranges::find(verbs, std::string_view(argv[1])) != std::end(verbs))
    return false;
  if (!std::filesystem::exists(argv[1]))
    if (const auto verb = nearest(argv[1], {std::begin(verbs), std::end(verbs)}))
      throw UserError(
          fmt::format("'{}' is neither a verb nor a deck; did you mean '{}'?", argv[1], *verb));
  return true;
}

int run(int argc, char** argv) {
  if (trains(argc, argv)) {
    const std::vector<std::string> overrides(argv + 2, argv + argc);
    return static_cast<int>(train_command(argc, argv, argv[1], overrides));
  }
  CLI::App app{"trireme: data-parallel GPT training for MPI clusters", "trireme"};
  Request request;
  app.require_subcommand(1);
  app.set_version_flag("--version", build_info_text());
  const CLI::App* verify = add_verbs(app, request);
  BenchVerb bench(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    print(build_info_text());
    return static_cast<int>(ExitCode::done);
  } catch (const CLI::CallForHelp&) {
    print(usage);
    return static_cast<int>(ExitCode::done);
  } catch (const CLI::ParseError& problem) {
    std::fprintf(stderr, "error: %s\n%s", problem.what(), usage);
    return static_cast<int>(ExitCode::user_error);
  }
  if (bench.asked())
    return static_cast<int>(bench.run(argc, argv));
  if (verify->parsed())
    return static_cast<int>(
        verify_command(argc, argv, request.deck, request.overrides, request.steps));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& problem) {
    const Verdict verdict = verdict_of(problem);
    for (const std::string& line : verdict.lines) std::fprintf(stderr, "%s\n", line.c_str());
    return static_cast<int>(verdict.code);
  }
}
