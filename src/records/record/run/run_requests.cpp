// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_requests.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/threads.hpp"
#include "files/descriptor.hpp"
#include "files/file_lock.hpp"
#include "files/path.hpp"

namespace trireme::record {
namespace {

constexpr std::array all_requests{RunRequest::save, RunRequest::stop, RunRequest::stop_now};
constexpr std::chrono::seconds between_looks{1};

/// Whether there was such a request. Removes its file.
bool take(const std::string& run_directory, RunRequest request) {
  const std::string path = run_directory + "/" + file_of(request);
  return ::unlink(path.c_str()) == 0;
}

}  // namespace

std::string file_of(RunRequest request) {
  constexpr const char* words[] = {"save", "stop", "stop-now"};  // in the order of the enumeration
  return fmt::format("{}.request", words[static_cast<std::size_t>(request)]);
}

std::string ask_run(const std::string& run_directory, RunRequest request) {
  if (!files::exists(run_directory + "/lock"))
    throw UserError(Place{run_directory},
                    "this is not the directory of a run: it has no file named lock. Name the "
                    "run.directory of the run");
  files::FileLock lock(run_directory + "/lock");
  if (lock.share() == files::Taken::yes)
    throw UserError(Place{run_directory}, "no run is using this directory now");
  static_cast<void>(
      files::Descriptor(run_directory + "/" + file_of(request), O_WRONLY | O_CREAT | O_NOFOLLOW));
  return lock.holder("a run");
}

void remove_requests(const std::string& run_directory) {
  for (const RunRequest request : all_requests) static_cast<void>(take(run_directory, request));
}

RunRequests::RunRequests(std::string run_directory, std::function<void(RunRequest)> listener)
    : run_directory_(std::move(run_directory)), listener_(std::move(listener)) {
  thread_ = start_thread<std::jthread>("run-requests",
                                       [this](const std::stop_token& stop) { serve(stop); });
}

void RunRequests::serve(const std::stop_token& stop) {
  while (sleep_unless_stopped(stop, between_looks)) {
    if (const int directory = ::open(run_directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        directory >= 0)
      ::close(directory);
    for (const RunRequest request : all_requests)
      if (take(run_directory_, request))
        listener_(request);
  }
}

}  // namespace trireme::record
