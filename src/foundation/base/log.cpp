// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include <fmt/chrono.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "base/line_output.hpp"
#include "base/text.hpp"

namespace trireme {

void Log::also_to_file(const std::string& path, std::function<std::shared_ptr<void>()> begin_work) {
  if (!verbose_)
    return;
  std::FILE* const file = std::fopen(path.c_str(), "ae");
  if (file == nullptr)
    throw StorageError("file system", "open log " + path, std::strerror(errno));
  const std::lock_guard lock(mutex_);
  begin_work_ = std::move(begin_work);
  file_.reset(file, [](std::FILE* opened) { std::fclose(opened); });
}

void Log::say(std::string_view level, std::string_view untrusted) {
  const std::string text = for_terminal(untrusted);
  if (verbose_ || (level != "info" && who_.empty()))
    log_output().write(text + "\n");
  else if (level != "info")
    log_output().write(fmt::format("[{}] {}: {}\n", who_, level, text));
  write_to_file(level, text);
}

void Log::only_to_file(std::string_view line) {
  write_to_file("error", for_terminal(line));
}

void Log::write_to_file(std::string_view level, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!file_)
    return;
  const auto work = begin_work_ ? begin_work_() : nullptr;
  const std::string line =
      fmt::format("{:%Y-%m-%d %H:%M:%S} {} {}\n", fmt::localtime(std::time(nullptr)), level, text);
  if (std::fputs(line.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0)
    return;
  if (!std::exchange(fails_, true))
    error_line("warning: the log cannot be written: {}", std::strerror(errno));
}

}  // namespace trireme
