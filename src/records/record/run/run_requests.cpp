// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_requests.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
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

std::string path_of(const std::string& run_directory, RunRequest request) {
  return run_directory + "/" + file_of(request);
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
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
  const files::Descriptor file(path_of(run_directory, request), O_WRONLY | O_CREAT | O_NOFOLLOW);
  file.touch();  // an earlier request may remain that the run could not remove
  return lock.holder("a run");
}

void remove_requests(const std::string& run_directory) {
  for (const RunRequest request : all_requests) {
    const std::string path = path_of(run_directory, request);
    const int problem = ::unlink(path.c_str()) == 0 ? 0 : errno;
    if (problem != 0 && is_file(path))
      throw StorageError("record", "remove the earlier request " + path, std::strerror(problem));
  }
}

RunRequests::RunRequests(std::string run_directory, std::function<void(RunRequest)> listener)
    : run_directory_(std::move(run_directory)), listener_(std::move(listener)) {
  thread_ = start_thread<std::jthread>("run-requests",
                                       [this](const std::stop_token& stop) { serve(stop); });
}

bool RunRequests::take(RunRequest request) {
  const std::string path = path_of(run_directory_, request);
  if (::unlink(path.c_str()) == 0)
    return true;
  // In a directory with the sticky bit, only its owner can remove the file of another user.
  if (!is_file(path))
    return false;
  std::error_code problem;
  const auto written = std::filesystem::last_write_time(path, problem);
  auto& seen = remaining_.at(static_cast<std::size_t>(request));
  return !problem && std::exchange(seen, written) != written;
}

void RunRequests::serve(const std::stop_token& stop) {
  while (sleep_unless_stopped(stop, between_looks)) {
    if (const int directory = ::open(run_directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        directory >= 0)
      ::close(directory);
    for (const RunRequest request : all_requests)
      if (take(request))
        listener_(request);
  }
}

}  // namespace trireme::record
