// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_trial.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"

#include "h5/handle.hpp"
#include "record/run/run_file.hpp"

namespace trireme::record {
namespace {

// What the process writes: `began` once nothing but the file can make it fail, then `found`, the
// last step or nothing, a blank, the last checkpoint's step, a line break, the damage.
constexpr char began = 'b', found_word = 'f';

std::string& program() {
  static std::string path;
  return path;
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc{} && end == text.data() + text.size() ? std::optional(number)
                                                                    : std::nullopt;
}

/// What a resume does with the file. Nothing of it reaches the disk.
void rehearse(const std::string& path, std::int64_t step) {
  const RunHeader header{
      .facts = {}, .deck = {{"run.name", ""}}, .hosts = {"host"}, .buckets = {{"a", "b", 1, 0, 1}}};
  RunFileOptions options;
  options.rehearsal = true;
  RunFile file = RunFile::resume(path, header, step, options);
  file.append(StepRow{.step = step + 1});
  file.append_validation({step + 1, 0});
  file.append_checkpoint({.step = step + 1, .bytes = 0, .copy_s = 0, .stall_s = 0, .write_s = 0});
  file.append_skipped({.step = step + 1, .found = "nothing"});
  file.append_rank_spans(std::array<RankSpanRow, 1>{});
  file.append_samples(std::array<device::TimeSample, 1>{});
  file.set_timing_fact("dropped", 0, "1");
  file.set_anchors(std::array<double, 1>{});
  file.set_memory("peak_resident", 0);
  file.close();
}

RunFindings look_here(const std::string& path, std::optional<std::int64_t> step) {
  RunFindings found;
  found.damage = RunFile::damage(path);
  try {
    found.last_step = RunFile::last_step(path);
    found.last_checkpoint = RunFile::last_checkpoint(path);
    if (step && found.damage.empty() && found.last_step)
      rehearse(path, *step);
  } catch (const h5::DamagedError& error) {
    if (found.damage.empty())
      found.damage = error.what();
    if (!found.last_step)
      found.last_step = 0;
  } catch (const UserError&) {  // not a record that can be continued: resume() reports why
  }
  return found;
}

/// Keeps memory for what reading takes, so that HDF5 does not lack it. What is allocated from it
/// holds no zeros: HDF5 that reads what it never wrote is to crash here, not in the process that
/// goes on.
bool keep_memory(std::size_t bytes) {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  void* kept = std::malloc(bytes);
  asm volatile("" : : "g"(kept) : "memory");  // taken although it is not used
  std::free(kept);
  ::mallopt(M_PERTURB, 0x5a);
  return kept != nullptr;
}

void limit(int which, rlim_t value) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource>(which), &now) != 0)
    return;
  now.rlim_cur = std::min(value, now.rlim_max);
  ::setrlimit(static_cast<__rlimit_resource>(which), &now);
}

bool send(std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// A process, and the end of the pipe that it writes into.
struct Started {
  pid_t process = -1;
  int answer = -1;
};

Started start(const std::string& path, std::optional<std::int64_t> step) {
  Started started;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return started;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);  // these cannot fail in the C library of GNU
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string words[] = {"trireme", trial_verb, path, step ? std::to_string(*step) : ""};
  char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(),
                             step ? words[3].data() : nullptr, nullptr};
  const int problem =
      ::posix_spawn(&started.process, program().c_str(), &files, &attributes, arguments, environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  started.answer = ends[0];
  if (problem != 0) {
    ::close(std::exchange(started.answer, -1));
    started.process = -1;
  }
  return started;
}

/// What the process printed, and the status with which it ended; none where it is not known.
std::pair<std::string, std::optional<int>> outcome_of(const Started& started) {
  std::string answer;
  for (char piece[4096];;) {
    const auto got = ::read(started.answer, piece, sizeof piece);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      break;
    answer.append(piece, static_cast<std::size_t>(got));
  }
  ::close(started.answer);
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(started.process, &status, 0);
  } while (ended < 0 && errno == EINTR);
  return {answer, ended == started.process ? std::optional(status) : std::nullopt};
}

/// Why the file, and nothing else, made the process end; "" when that is not known.
std::string death_of(int status) {
  const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  switch (number) {
    case SIGXCPU:
      return "HDF5 does not come to an end of reading it";
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGABRT:
      return fmt::format("HDF5 itself crashes when it reads it ({})", ::strsignal(number));
    case 0:  // a sanitizer ends with an exit code
      return fmt::format("HDF5 itself crashes when it reads it (exit code {})",
                         WEXITSTATUS(status));
    default:
      return "";
  }
}

}  // namespace

void use_trial_program(std::string path) {
  program() = std::move(path);
}

RunFindings look_at_run_file(const std::string& path, std::optional<std::int64_t> step) {
  struct stat facts {};
  if (program().empty() || ::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode))
    return look_here(path, step);
  const Started started = start(path, step);
  if (started.process < 0)
    return look_here(path, step);
  const auto [answer, status] = outcome_of(started);
  if (answer.size() > 1 && answer[1] == found_word) {
    const auto line = answer.find('\n');
    if (line != std::string::npos) {
      const std::string_view steps = std::string_view(answer).substr(2, line - 2);
      const auto blank = std::min(steps.find(' '), steps.size());
      return {.damage = answer.substr(line + 1),
              .last_step = number_in(steps.substr(0, blank)),
              .last_checkpoint =
                  number_in(steps.substr(std::min(blank + 1, steps.size()))).value_or(0)};
    }
  }
  if (answer == std::string(1, began) && status)
    if (std::string death = death_of(*status); !death.empty())
      return {.damage = std::move(death), .last_step = 0};
  return look_here(path, step);
}

ExitCode run_trial(std::span<const char* const> arguments) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  constexpr std::size_t least_memory = std::size_t{64} << 20U;
  // Far slower than any file is read and hashed; what takes longer goes around in circles.
  constexpr std::int64_t least_seconds = 10, bytes_per_s = 5'000'000;
  struct stat facts {};
  if (arguments.empty() || ::stat(arguments[0], &facts) != 0 ||
      !keep_memory(least_memory + static_cast<std::size_t>(facts.st_size)))
    return ExitCode::environment;
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, static_cast<rlim_t>(least_seconds + facts.st_size / bytes_per_s));
  if (!send(std::string(1, began)))
    return ExitCode::environment;
  std::string verdict;
  try {
    const auto found =
        look_here(arguments[0], arguments.size() > 1 ? number_in(arguments[1]) : std::nullopt);
    verdict = fmt::format("{}{} {}\n{}", found_word,
                          found.last_step ? std::to_string(*found.last_step) : "",
                          found.last_checkpoint, found.damage);
  } catch (const std::exception&) {  // the asking process fails in the same way, and names it
    verdict = "?";
  }
  send(verdict);
  return ExitCode::done;
}

}  // namespace trireme::record
