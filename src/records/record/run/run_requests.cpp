// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_requests.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/threads.hpp"
#include "files/file_lock.hpp"

namespace trireme::record {
namespace {

constexpr std::array all_requests{RunRequest::save, RunRequest::stop, RunRequest::stop_now};
constexpr std::chrono::seconds between_looks{1};

}  // namespace

std::string file_of(RunRequest request) {
  switch (request) {
    case RunRequest::save:
      return "save.request";
    case RunRequest::stop:
      return "stop.request";
    case RunRequest::stop_now:
      break;
  }
  return "stop-now.request";
}

std::string ask_run(const std::string& run_directory, RunRequest request) {
  std::error_code ignored;
  if (!std::filesystem::exists(run_directory + "/lock", ignored))
    throw UserError(Place{run_directory},
                    "this is not the directory of a run: it has no file named lock. Name the "
                    "run.directory of the run");
  files::FileLock lock(run_directory + "/lock");
  if (lock.share() == files::Taken::yes)
    throw UserError(Place{run_directory}, "no run is using this directory now");
  const std::string path = run_directory + "/" + file_of(request);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0)
    throw StorageError("file system", "open " + path, std::strerror(errno), __FILE__, __LINE__);
  ::close(file);
  return lock.holder("a run");
}

RunRequests::RunRequests(std::string run_directory, std::function<void(RunRequest)> listener)
    : run_directory_(std::move(run_directory)), listener_(std::move(listener)) {
  for (const RunRequest request : all_requests) static_cast<void>(take(request));
  thread_ = start_thread("run-requests", [this] { serve(); });
}

RunRequests::~RunRequests() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool RunRequests::take(RunRequest request) const {
  const std::string path = run_directory_ + "/" + file_of(request);
  return ::unlink(path.c_str()) == 0;
}

void RunRequests::serve() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, between_looks, [this] { return ending_; })) {
    lock.unlock();
    if (const int directory = ::open(run_directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        directory >= 0)
      ::close(directory);
    for (const RunRequest request : all_requests)
      if (take(request))
        listener_(request);
    lock.lock();
  }
}

}  // namespace trireme::record
