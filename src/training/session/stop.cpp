// SPDX-License-Identifier: Apache-2.0
#include "session/stop.hpp"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/line_output.hpp"
#include "base/threads.hpp"
#include "device/recorder.hpp"

#include "comm/control/temporary_directory.hpp"

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

std::optional<StopReason> Requests::stop() const {
  for (std::size_t i = 0; i < stops.size(); ++i)
    if (stops.at(i) > 0)
      return static_cast<StopReason>(i);
  return std::nullopt;
}

Requests agree(comm::World& world, const Requests& mine) {
  Requests all = mine;
  const auto for_each = [&](const auto& visit) {
    for (std::int64_t* number :
         {&all.checkpoint, &all.writing, &all.unfinished, &all.text_bytes, &all.energy.cpu_uj,
          &all.energy.cpu_missing, &all.energy.gpu_uj, &all.energy.gpu_missing})
      visit(*number);
    for (std::int64_t& number : all.stops) visit(number);
    for (std::int64_t& number : all.more) visit(number);
  };
  thread_local std::vector<std::int64_t> sums;  // kept, so that a step allocates nothing
  sums.clear();
  for_each([](const std::int64_t& number) { sums.push_back(number); });
  world.sum(sums);
  std::size_t next = 0;
  for_each([&](std::int64_t& number) { number = sums[next++]; });
  return all;
}

SignalScope::SignalScope(std::string work) : work_(std::move(work)) {
  sigemptyset(&watched_);
  for (const int number : {SIGUSR1, SIGPIPE, SIGXFSZ, SIGCONT}) sigaddset(&watched_, number);
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
  if (signal == SIGCONT)
    suspended_ = true;
  if (signal == SIGINT &&
      requested_.stops.at(static_cast<std::size_t>(StopReason::interrupt)) > 0) {
    say("Ended at once by a second SIGINT: the steps since the newest checkpoint are lost.");
    std::signal(SIGINT, SIG_DFL);
    sigset_t only{};
    sigemptyset(&only);
    sigaddset(&only, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    comm::TemporaryDirectory::remove_all();
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
  const ExitCode code = reason ? code_of(*reason) : ExitCode::user_error;
  if (!reason)
    say(fmt::format("error: the time ended {}: {} leaves no more. Raise this limit.",
                    work_.empty()
                        ? "while the run was preparing (reading and checking its data), before its "
                          "first step"
                        : "before " + work_ + " had a result",
                    limit_.source));
  else if (work_.empty())
    say("Stopped before the first step: " + text_of(*reason) +
        ". There was nothing to save; run the same command again to start.");
  else
    say(fmt::format("Stopped {}: {}. There is no result; run the same command again to start over.",
                    work_, text_of(*reason)));
  if (end_)
    end_(code);
  comm::TemporaryDirectory::remove_all();
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

bool SignalScope::take_suspension() {
  const std::lock_guard lock(mutex_);
  note_own();
  return std::exchange(suspended_, false);
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
    end_(ExitCode::stopped);
  std::_Exit(static_cast<int>(ExitCode::stopped));
}

void SignalScope::end_by(int rank, std::function<void(ExitCode)> end) {
  const std::lock_guard lock(mutex_);
  rank_ = rank;
  end_ = std::move(end);
}

void SignalScope::limit_time(TimeLimit limit) {
  const std::lock_guard lock(mutex_);
  limit_ = std::move(limit);
}

double SignalScope::deadline() {
  const std::lock_guard lock(mutex_);
  return limit_.deadline;
}

std::string SignalScope::text_of(StopReason reason) {
  if (reason == StopReason::request)
    return "`trireme stop` requested it";
  if (const auto* one = std::ranges::find(stopping, reason, &Watched::reason);
      one != std::end(stopping))
    return std::string(one->name) + " was received";
  const std::lock_guard lock(mutex_);
  return limit_.source + " leaves no time for another step and a checkpoint";
}

void SignalScope::training_begins() {
  const std::lock_guard lock(mutex_);
  preparing_ = false;
}

bool Walltime::ends(double left_s, bool writing) const {
  const double checkpoint = slowest_checkpoint_ > 0 ? slowest_checkpoint_ : expected_checkpoint_;
  return 1.5 * (slowest_step_ + (writing ? 2 : 1) * checkpoint) >= left_s;
}

}  // namespace trireme::session
