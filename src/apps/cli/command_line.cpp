// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "base/build_info.hpp"
#include "base/error_line.hpp"
#include "base/text.hpp"

#include "ops/matmul.hpp"

#include "train/progress.hpp"

#include "cli/verb.hpp"
#include "doctor/host_facts.hpp"

namespace trireme::cli {

void print(const std::string& untrusted) {
  const std::string text = for_terminal(untrusted);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw StorageError("file system", "write standard output", std::strerror(errno));
}

namespace {

/// The end of the first rank ends the others before each of them prints the same error.
void let_the_first_rank_report() {
  if (const char* rank = train::launched_rank(); rank != nullptr && std::string_view(rank) != "0")
    std::this_thread::sleep_for(std::chrono::seconds(2));
}

/// Throws UserError if a launcher started several processes of this verb, but not if it started a
/// script or an interactive shell, which has the same variables as its children.
void expect_one_process(const char* verb) {
  const doctor::Launch launch = doctor::launch_in_environment_of("self");
  if (launch.processes <= 1 ||
      launch == doctor::launch_in_environment_of(std::to_string(::getppid())))
    return;
  let_the_first_rank_report();
  throw UserError(fmt::format(
      "`trireme {}` runs in one process, but {} started {}. Start it without a launcher", verb,
      launch.launcher, launch.processes));
}

constexpr std::string_view training =
    "trireme DECK [section.key=value ...]    train; start with mpirun or srun\n";

std::string usage_of(const Verb& verb) {
  std::string text = fmt::format("trireme {} ", verb.name);
  const std::string margin(7 + text.size(), ' ');
  for (const char* letter = verb.usage; *letter != '\0'; ++letter) {
    text += *letter;
    if (*letter == '\n')
      text += margin;
  }
  return text + '\n';
}

std::string whole_usage() {
  std::string text = "usage: ";
  text += training;
  for (const Verb& verb : verbs()) text += "       " + usage_of(verb);
  return text +
         "       trireme --version | --help\n"
         "       trireme VERB --help explains the options of a verb.\n"
         "\n"
         "Exit codes:\n"
         "   0  done\n"
         "   2  a mistake in the deck, the command line or the data\n"
         "   3  the environment failed: MPI, NCCL, CUDA, a disk, another rank\n"
         "   4  a bug in trireme: please report the line\n"
         "  75  stopped before the last step: run the same command again\n"
         "  76  the same, by `trireme stop`: jobs do not start it again\n";
}

/// Of the verbs whose first word this is, such as bench; "" if it is none's.
std::string usage_of_group(std::string_view word) {
  std::string text;
  for (const Verb& verb : verbs())
    if (std::string_view(verb.name).starts_with(fmt::format("{} ", word)))
      text += (text.empty() ? "usage: " : "       ") + usage_of(verb);
  return text.empty() ? text : text + "       each with --help explains its options.\n";
}

std::string explanation_of(const Verb& verb, const CLI::App& command) {
  // CLI11's help below our own usage. Its headings differ between versions.
  const CLI::Formatter formatter;
  return fmt::format("usage: {}\n{}\n{}{}", usage_of(verb), verb.help,
                     formatter.make_positionals(&command),
                     formatter.make_groups(&command, CLI::AppFormatMode::Normal));
}

std::vector<std::string_view> first_words() {
  std::vector<std::string_view> words;
  for (const Verb& verb : verbs()) {
    const std::string_view name = verb.name;
    words.push_back(name.substr(0, name.find(' ')));
    if (verb.alias != nullptr)
      words.emplace_back(verb.alias);
  }
  return words;
}

/// A first word that is neither a verb nor an option names a deck. Throws UserError if there is no
/// such file and the word resembles a verb, or no name of a file.
bool trains(int argc, char** argv) {
  const std::vector<std::string_view> words = first_words();
  if (argc < 2 || argv[1][0] == '-' ||
      std::ranges::find(words, std::string_view(argv[1])) != words.end())
    return false;
  if (std::filesystem::exists(argv[1]))
    return true;
  const std::string_view word = argv[1];
  if (const auto verb = nearest(word, {words.begin(), words.end()}))
    throw UserError(
        fmt::format("'{}' is neither a verb nor a deck; did you mean '{}'?", word, *verb));
  if (word.find_first_of("./") == std::string_view::npos)
    throw UserError(
        fmt::format("'{}' is neither a verb nor a deck. `trireme DECK` trains; "
                    "`trireme --help` lists the verbs.",
                    word));
  return true;
}

CLI::App* alias_of(const Verb& verb, CLI::App* command) {
  return verb.alias == nullptr ? command : command->alias(verb.alias);
}

/// Creates the command of a verb, and that of its group if it is the group's first verb.
CLI::App* command_of(CLI::App& app, std::map<std::string, CLI::App*>& groups, const Verb& verb) {
  const std::string_view name = verb.name;
  const auto space = name.find(' ');
  if (space == std::string_view::npos)
    return alias_of(verb, app.add_subcommand(verb.name, verb.help));
  const std::string group(name.substr(0, space));
  CLI::App*& of_group = groups[group];
  if (of_group == nullptr) {
    of_group = app.add_subcommand(group);
    of_group->require_subcommand(1);
  }
  return of_group->add_subcommand(std::string(name.substr(space + 1)), verb.help);
}

}  // namespace

ExitCode run(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "", second = argc > 2 ? argv[2] : "";
  if (first == "help" && second != "deck" && !second.starts_with('-')) {
    std::string help = "--help";  // `help VERB` is `VERB --help`
    std::rotate(argv + 1, argv + 2, argv + argc);
    argv[argc - 1] = help.data();
    return run(argc, argv);
  }
  if (trains(argc, argv))
    return train_deck({argc, argv, "train"});
  CLI::App app{"trireme: data-parallel GPT training for MPI clusters", "trireme"};
  app.require_subcommand(1);
  app.set_version_flag("--version");
  std::map<std::string, CLI::App*> groups;
  struct Chosen {
    const Verb* verb = nullptr;
    const CLI::App* command = nullptr;
    Action action;
  } chosen;
  for (const Verb& verb : verbs()) {
    CLI::App* command = command_of(app, groups, verb);
    command->preparse_callback(
        [&chosen, &verb, command, action = verb.declare(*command)](std::size_t) {
          chosen = {&verb, command, action};
        });
  }
  const std::string of_group = argc < 2 ? "" : usage_of_group(argv[1]);
  try {
    app.parse(argc, argv);
    for (const CLI::Option* option : chosen.command->get_options())
      if (const std::string name = option->get_name(); name != "--prompt" && name != "--separator")
        if (std::ranges::find(option->results(), "") != option->results().end())
          throw CLI::ValidationError(name, "the value is empty. Is a shell variable not set?");
  } catch (const CLI::CallForVersion&) {
    print(build_info_text(ops::onednn_version()));
    return ExitCode::done;
  } catch (const CLI::CallForHelp&) {
    print(chosen.verb != nullptr ? explanation_of(*chosen.verb, *chosen.command)
          : of_group.empty()     ? whole_usage()
                                 : of_group);
    return ExitCode::done;
  } catch (const CLI::ParseError& problem) {
    let_the_first_rank_report();
    if (chosen.verb == nullptr && !of_group.empty())
      error_line("error: {} takes one of these words after it", argv[1]);
    else
      error_line("error: {}", argc < 2 ? "a deck or a verb is missing" : problem.what());
    const std::string usage =
        chosen.verb != nullptr
            ? fmt::format("usage: {}       trireme {} --help explains the options.\n",
                          usage_of(*chosen.verb), chosen.verb->name)
        : of_group.empty() ? whole_usage()
                           : of_group;
    std::fputs(usage.c_str(), stderr);
    return ExitCode::user_error;
  }
  if (chosen.verb->runs == Runs::alone)
    expect_one_process(chosen.verb->name);
  Arguments arguments{argc, argv, chosen.verb->name};
  for (const CLI::Option* option : chosen.command->get_options())
    arguments.options.emplace_back(option->get_name(),
                                   fmt::format("{}", fmt::join(option->results(), " ")));
  return chosen.action(arguments);
}

}  // namespace trireme::cli
