// SPDX-License-Identifier: Apache-2.0
#include "session/stop.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/line_output.hpp"
#include "base/threads.hpp"
#include "device/recorder.hpp"

namespace trireme::session {
namespace {

/// Time between two checks of the clock, and the longest wait for the watcher to end.
constexpr timespec between_looks{0, 250'000'000};

struct Watched {
  int signal;
  StopReason reason;
  const char* name;
};
constexpr Watched stopping[] = {{SIGTERM, StopReason::terminate, "SIGTERM"},
                                {SIGINT, StopReason::interrupt, "SIGINT"},
                                {SIGHUP, StopReason::hangup, "SIGHUP"},
                                {SIGXCPU, StopReason::cpu_time, "SIGXCPU"},
                                {SIGUSR2, StopReason::user_signal, "SIGUSR2"}};

bool ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// Writes to standard error, whose reader may have paused.
void say(const std::string& line) {
  LineOutput(STDERR_FILENO).write(line + '\n');
}

}  // namespace

std::string text_of(StopReason reason) {
  for (const Watched& one : stopping)
    if (one.reason == reason)
      return std::string(one.name) + " was received";
  switch (reason) {
    case StopReason::request:
      return "`trireme stop` requested it";
    case StopReason::job_end:
      return "the Slurm job ends soon (SLURM_JOB_END_TIME)";
    default:
      return "run.walltime leaves no time for another step and a checkpoint";
  }
}

std::optional<StopReason> Requests::stop() const {
  for (std::size_t i = 0; i < stops.size(); ++i)
    if (stops.at(i) > 0)
      return static_cast<StopReason>(i);
  return std::nullopt;
}

Requests agree(comm::World& world, const Requests& mine) {
  Requests all = mine;
  std::vector<std::int64_t> said{all.checkpoint, all.writing, all.unfinished, all.text_bytes};
  said.insert(said.end(), all.stops.begin(), all.stops.end());
  said.insert(said.end(), all.more.begin(), all.more.end());
  world.sum(said);
  all.checkpoint = said[0];
  all.writing = said[1];
  all.unfinished = said[2];
  all.text_bytes = said[3];
  std::copy_n(said.begin() + 4, all.stops.size(), all.stops.begin());
  std::copy(said.end() - std::ssize(all.more), said.end(), all.more.begin());
  return all;
}

SignalScope::SignalScope(std::string work) : work_(std::move(work)) {
  sigemptyset(&watched_);
  for (const int number : {SIGUSR1, SIGPIPE, SIGXFSZ}) sigaddset(&watched_, number);
  for (const Watched& one : stopping)
    if ((one.signal != SIGINT && one.signal != SIGHUP) || !ignored(one.signal))
      sigaddset(&watched_, one.signal);
  pthread_sigmask(SIG_BLOCK, &watched_, nullptr);
  watcher_ = start_thread("signals", [this] { watch(); });
}

SignalScope::~SignalScope() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  pthread_kill(watcher_.native_handle(), SIGPIPE);  // wakes it up
  watcher_.join();
}

void SignalScope::watch() {
  for (;;) {
    const int signal = sigtimedwait(&watched_, nullptr, &between_looks);
    const std::lock_guard lock(mutex_);
    if (ending_)
      return;
    if (signal > 0)
      note(signal);
    if (preparing_ && (requested_.stop() || device::steady_seconds() >= limit_.deadline))
      end_preparation();
  }
}

void SignalScope::note(int signal) {
  if (signal == SIGUSR1)
    requested_.checkpoint = 1;
  if (signal == SIGINT &&
      requested_.stops.at(static_cast<std::size_t>(StopReason::interrupt)) > 0) {
    say("Ended at once by a second SIGINT: the steps since the newest checkpoint are lost.");
    std::signal(SIGINT, SIG_DFL);
    sigset_t only{};
    sigemptyset(&only);
    sigaddset(&only, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    std::raise(SIGINT);
  }
  for (const Watched& one : stopping)
    if (one.signal == signal)
      requested_.stop_for(one.reason);
}

void SignalScope::end_preparation() {
  const auto reason = requested_.stop();
  // Every rank may have received the signal; the first rank prints it, unless it does not end.
  constexpr std::chrono::seconds for_the_first_rank{2};
  if (rank_ > 0)
    std::this_thread::sleep_for(for_the_first_rank);
  const ExitCode code = reason ? ExitCode::requeue : ExitCode::user_error;
  if (!reason)
    say(fmt::format(
        "error: the time ended {}. {}",
        work_.empty() ? "while the run was preparing (reading and checking its data), before its "
                        "first step"
                      : "before " + work_ + " had a result",
        limit_.reason == StopReason::walltime ? "Raise run.walltime." : "Request a longer job."));
  else if (work_.empty())
    say("Stopped before the first step: " + text_of(*reason) +
        ". There was nothing to save; run the same command again to start.");
  else
    say(fmt::format("Stopped {}: {}. There is no result; run the same command again to start over.",
                    work_, text_of(*reason)));
  if (end_)
    end_(code);
  std::_Exit(static_cast<int>(code));
}

void SignalScope::note_own() {
  constexpr timespec at_once{};
  for (int signal = 0; (signal = sigtimedwait(&watched_, nullptr, &at_once)) > 0;) note(signal);
}

std::optional<StopReason> SignalScope::stop() {
  const std::lock_guard lock(mutex_);
  note_own();
  return requested_.stop();
}

bool SignalScope::take_checkpoint() {
  const std::lock_guard lock(mutex_);
  note_own();
  return std::exchange(requested_.checkpoint, 0) > 0;
}

void SignalScope::request_checkpoint() {
  const std::lock_guard lock(mutex_);
  requested_.checkpoint = 1;
}

void SignalScope::request_stop(StopReason reason) {
  const std::lock_guard lock(mutex_);
  requested_.stop_for(reason);
}

void SignalScope::end_now(const std::string& why) {
  const std::lock_guard lock(mutex_);
  say(why);
  if (end_)
    end_(ExitCode::requeue);
  std::_Exit(static_cast<int>(ExitCode::requeue));
}

void SignalScope::end_by(int rank, std::function<void(ExitCode)> end) {
  const std::lock_guard lock(mutex_);
  rank_ = rank;
  end_ = std::move(end);
}

void SignalScope::limit_preparation(const TimeLimit& limit) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
}

void SignalScope::training_begins() {
  const std::lock_guard lock(mutex_);
  preparing_ = false;
}

std::optional<double> slurm_end(double now, std::string& warning) {
  const char* text = std::getenv("SLURM_JOB_END_TIME");  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr || *text == '\0')
    return std::nullopt;
  double seconds = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, problem] = std::from_chars(text, end, seconds);
  if (problem != std::errc() || rest != end) {
    warning = fmt::format(
        "SLURM_JOB_END_TIME is '{}', which is not a number of seconds since 1970. The end of the "
        "job is not known; use run.walltime to limit the run",
        text);
    return std::nullopt;
  }
  // Slurm gives 0 or the largest number where there is no limit.
  if (seconds <= 0 || seconds >= 4e9)
    return std::nullopt;
  if (seconds <= now) {
    warning = fmt::format(
        "SLURM_JOB_END_TIME is {}, which is in the past: this shell is left from a job that has "
        "ended. It is ignored; use run.walltime to limit the run",
        text);
    return std::nullopt;
  }
  return seconds;
}

void Walltime::step_took(double seconds) {
  slowest_step_ = std::max(slowest_step_, seconds);
}

void Walltime::checkpoint_took(double seconds) {
  slowest_checkpoint_ = std::max(slowest_checkpoint_, seconds);
}

bool Walltime::ends(double now, bool writing) const {
  const double checkpoint = slowest_checkpoint_ > 0 ? slowest_checkpoint_ : expected_checkpoint_;
  return now + 1.5 * (slowest_step_ + (writing ? 2 : 1) * checkpoint) >= deadline_;
}

}  // namespace trireme::session
