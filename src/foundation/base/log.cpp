// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <mutex>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include "base/error.hpp"
#include "base/line_output.hpp"
#include "base/text.hpp"

namespace trireme {
namespace {

class TerminalSink : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    standard_output().write({line.data(), line.size()});
  }
  void flush_() override {}
};

std::string pattern_for(const std::string& who) {
  return who.empty() ? "%v" : "[" + who + "] %l: %v";
}

}  // namespace

Log::Log(bool verbose, std::string who) : verbose_(verbose), who_(std::move(who)) {
  auto terminal = std::make_shared<TerminalSink>();
  terminal->set_level(verbose_ ? spdlog::level::info : spdlog::level::warn);
  terminal->set_pattern(pattern_for(verbose_ ? "" : who_));
  logger_ = std::make_shared<spdlog::logger>("trireme", terminal);
  logger_->flush_on(spdlog::level::info);
}

void Log::also_to_file(const std::string& path) {
  if (!verbose_)
    return;
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    file->set_pattern("%Y-%m-%d %H:%M:%S %l %v");
    logger_->sinks().push_back(file);
    file_ = std::make_shared<spdlog::logger>("file", file);
    file_->flush_on(spdlog::level::info);
  } catch (const spdlog::spdlog_ex& problem) {
    throw StorageError("file system", "open log " + path, problem.what());
  }
}

void Log::say(Level level, std::string_view untrusted) {
  const std::string text = for_terminal(untrusted);
  switch (level) {
    case Level::info:
      logger_->info(text);
      break;
    case Level::warning:
      logger_->warn(text);
      break;
    case Level::error:
      logger_->error(text);
      break;
  }
}

void Log::only_to_file(const std::string& line) {
  if (file_)
    file_->error(for_terminal(line));
}

}  // namespace trireme
