// SPDX-License-Identifier: Apache-2.0
#include "session/scheduler.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include "base/kernel_text.hpp"
#include "base/threads.hpp"
#include "device/recorder.hpp"

namespace trireme::session {
namespace {

constexpr double unlimited_s = std::numeric_limits<double>::infinity();
/// A scheduler kills at the end of the job, so the record is closed and MPI has ended earlier.
constexpr double margin_s = 5;
constexpr std::chrono::minutes between_questions{1};
constexpr int timeout_s = 20;
constexpr int between_looks_ms = 100;

std::string variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "" : text;
}

/// "1-02:03:04", "02:03:04", "3:04": the last part is in units of one, those before it in 60.
std::optional<double> colon_time(std::string_view text) {
  double days = 0, sum = 0;
  bool colon = false;
  if (const auto dash = text.find('-'); dash != std::string_view::npos) {
    days = static_cast<double>(number_at(text).value_or(0));
    text.remove_prefix(dash + 1);
  }
  for (;; text.remove_prefix(text.find(':') + 1)) {
    const auto part = number_at(text);
    if (!part || *part < 0)
      return std::nullopt;
    sum = sum * 60 + static_cast<double>(*part);
    if (text.find(':') == std::string_view::npos)
      break;
    colon = true;
  }
  return colon ? std::optional(days * 86400 + sum) : std::nullopt;
}

/// The value of a line "    KEY = VALUE" of `qstat -f`.
std::string attribute(const std::string& text, const std::string& key) {
  const auto at = text.find(" " + key + " = ");
  if (at == std::string::npos)
    return "";
  const auto begin = at + key.size() + 4;
  return text.substr(begin, text.find('\n', begin) - begin);
}

/// PBS: the start of the job and its walltime. The start is "Thu Nov 26 10:00:00 2026"; some sites
/// write the seconds since 1970 before it. The start is in local time, which is ambiguous for an
/// hour when summer time ends, and clocks may step; so the used time limits what is left as well,
/// though some sites update it rarely.
std::optional<double> left_of_pbs(const std::string& text, double now) {
  const auto walltime = colon_time(attribute(text, "Resource_List.walltime"));
  const std::string start = attribute(text, "stime");
  if (!walltime)
    return text.find(" stime = ") == std::string::npos ? std::nullopt : std::optional(unlimited_s);
  const auto used = colon_time(attribute(text, "resources_used.walltime"));
  const double most = *walltime - used.value_or(0);
  tm date{};
  date.tm_isdst = -1;
  if (::strptime(start.c_str(), "%a %b %d %H:%M:%S %Y", &date) != nullptr)
    return std::min(static_cast<double>(::mktime(&date)) + *walltime - now, most);
  if (const auto seconds = number_at(start))
    return std::min(static_cast<double>(*seconds) + *walltime - now, most);
  return used ? std::optional(most) : std::nullopt;
}

/// Standard output of a command; none if it fails, takes too long or becomes unwanted.
std::optional<std::string> output_of(const std::vector<std::string>& words,
                                     const std::function<bool()>& unwanted) {
  const std::string command = fmt::format("exec timeout -s KILL {} '{}' </dev/null 2>/dev/null",
                                          timeout_s, fmt::join(words, "' '"));
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr)
    return std::nullopt;
  std::string output;
  std::array<char, 4096> block{};
  pollfd answer{::fileno(pipe), POLLIN, 0};
  while (!unwanted()) {
    if (::poll(&answer, 1, between_looks_ms) <= 0)
      continue;
    const auto count = ::read(answer.fd, block.data(), block.size());
    if (count <= 0)
      return ::pclose(pipe) == 0 ? std::optional(output) : std::nullopt;
    output.append(block.data(), static_cast<std::size_t>(count));
  }
  return std::nullopt;  // `timeout` ends the command; this process does not wait for it
}

}  // namespace

SchedulerJob scheduler_job() {
  SchedulerJob job;
  job.index = variable("JOB_COMPLETION_INDEX");
  const auto named = [&](const std::string& kind, const std::string& id) {
    job.name = fmt::format("{} job{}{}", kind, id.empty() ? "" : " ", id);
    return id;
  };
  // A batch job of Flux is a Flux of its own, in which each `flux run` is a job.
  const std::string outer = variable("FLUX_ENCLOSING_ID"), inner = variable("FLUX_JOB_ID");
  if (!outer.empty() || !inner.empty()) {
    job.number = named("Flux", outer.empty() ? inner : outer);
    job.question = {"flux", "job", "timeleft"};
  } else if (const std::string slurm = variable("SLURM_JOB_ID"); !slurm.empty()) {
    const std::string array = variable("SLURM_ARRAY_JOB_ID");
    job.index = variable("SLURM_ARRAY_TASK_ID");
    job.number = array.empty() ? slurm : array;
    // The id of one task of an array may be that of the whole array.
    const std::string task = array.empty() ? slurm : array + "_" + job.index;
    job.question = {"squeue", "-h", "-j", named("Slurm", task), "-o", "%L"};
  } else if (const std::string pbs = variable("PBS_JOBID"); !pbs.empty()) {
    job.index = variable("PBS_ARRAY_INDEX");
    job.number = pbs.substr(0, pbs.find_first_of("[."));
    job.question = {"qstat", "-f", named("PBS", pbs)};
  } else if (const std::string lsf = variable("LSB_JOBID"); !lsf.empty()) {
    job.number = lsf;
    if (const std::string index = variable("LSB_JOBINDEX"); index != "0")
      job.index = index;
    const std::string task = job.index.empty() ? lsf : fmt::format("{}[{}]", lsf, job.index);
    job.question = {"bjobs", "-noheader", "-o", "time_left", named("LSF", task)};
  }
  return job;
}

std::optional<double> seconds_left(const std::string& program,
                                   const std::string& output,
                                   double now) {
  if (program == "qstat")
    return left_of_pbs(output, now);
  const std::string line = trimmed(output.substr(0, output.find('\n')));
  if (program == "squeue")
    return line == "UNLIMITED" ? std::optional(unlimited_s) : colon_time(line);
  if (program == "bjobs") {
    if (line == "-")
      return unlimited_s;
    // Hours and minutes, which may be rounded up, and seconds where LSB_HMS_TIME_FORMAT is set. L
    // is a limit; E and X are about an estimate, which ends no job.
    const bool in_minutes = std::ranges::count(line, ':') == 1;
    const auto left = colon_time(line);
    if (!left || !line.ends_with('L'))
      return std::nullopt;
    return in_minutes ? *left * 60 - 59 : *left;
  }
  const auto seconds = number_at(line);  // flux
  if (!seconds)
    return std::nullopt;
  constexpr std::int64_t no_limit = std::numeric_limits<std::uint32_t>::max();
  return *seconds >= no_limit ? unlimited_s : static_cast<double>(*seconds);
}

std::optional<double> slurm_end(double now, std::string& warning) {
  const std::string text = variable("SLURM_JOB_END_TIME");
  if (text.empty())
    return std::nullopt;
  double seconds = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, seconds);
  const bool number = problem == std::errc() && rest == end;
  // Slurm gives 0 or the largest number where there is no limit.
  if (number && (seconds <= 0 || seconds >= 4e9))
    return std::nullopt;
  if (number && seconds > now)
    return seconds;
  warning = fmt::format(
      "SLURM_JOB_END_TIME is '{}', which is {}. It is ignored; use run.walltime to limit the run",
      text,
      number ? "in the past: this shell is left from a job that has ended"
             : "not a number of seconds since 1970");
  return std::nullopt;
}

std::optional<double> ask_for_seconds_left(const SchedulerJob& job,
                                           const std::function<bool()>& unwanted) {
  if (job.question.empty())
    return std::nullopt;
  const auto output = output_of(job.question, unwanted);
  return output ? seconds_left(job.question.front(), *output, device::calendar_seconds())
                : std::nullopt;
}

std::optional<double> slurm_joules() {
  const std::string job = variable("SLURM_JOB_ID"), step = variable("SLURM_STEP_ID");
  if (job.empty() || step.empty())
    return std::nullopt;
  const double deadline = device::steady_seconds() + 2;
  const auto output =
      output_of({"sstat", "-n", "-P", "-j", job + "." + step, "-o", "ConsumedEnergyRaw"},
                [&] { return device::steady_seconds() > deadline; });
  const auto joules = output ? number_at(*output) : std::nullopt;
  // Without a counter it is empty, 0, or NO_VAL64.
  if (!joules || *joules <= 0 || *joules > (std::int64_t{1} << 62))
    return std::nullopt;
  return static_cast<double>(*joules);
}

JobClock::JobClock(double deadline,
                   SignalScope& signals,
                   std::function<void(const std::string&)> warn)
    : deadline_(deadline), signals_(signals), job_(scheduler_job()), warn_(std::move(warn)) {
  const double now = device::calendar_seconds();
  std::string warning;
  const auto end = slurm_end(now, warning);
  if (!warning.empty())
    warn_(warning);
  ends_in(end ? *end - now : unlimited_s, "SLURM_JOB_END_TIME");
  if (!job_.question.empty())
    thread_ = start_thread<std::jthread>(
        "job-clock", [this](const std::stop_token& stop) { ask_every_minute(stop); });
}

void JobClock::ends_in(double seconds, const std::string& source) {
  const double end = device::steady_seconds() + seconds - margin_s;
  signals_.limit_time(
      end < deadline_
          ? TimeLimit{end, fmt::format("the time limit of {} ({})",
                                       job_.name.empty() ? "the job" : job_.name, source)}
          : TimeLimit{deadline_, "run.walltime"});
}

void JobClock::ask_every_minute(const std::stop_token& stop) {
  bool told = signals_.deadline() < unlimited_s;
  do {
    const auto left = ask_for_seconds_left(job_, [&] { return stop.stop_requested(); });
    if (left && *left > 0)
      ends_in(*left, job_.question.front());
    else if (!left && !told && !stop.stop_requested())
      warn_(
          fmt::format("`{}` failed or does not tell when {} ends, so the run may be killed then "
                      "without a checkpoint. Set run.walltime to less than the time limit of the "
                      "job, or put {} on PATH",
                      fmt::join(job_.question, " "), job_.name, job_.question.front()));
    told = true;
  } while (sleep_unless_stopped(stop, between_questions));
}

}  // namespace trireme::session
