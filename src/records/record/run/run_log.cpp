// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_log.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <span>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/input_file.hpp"
#include "files/path.hpp"

#include "record/checkpoint/fact_names.hpp"
#include "record/run/log_line.hpp"
#include "record/run/run_schema.hpp"

namespace trireme::record {
namespace {

/// A log that is damaged may have no line feed at all.
constexpr std::size_t most_line_bytes = std::size_t{64} << 20U,
                      bytes_at_once = std::size_t{1} << 20U;

/// Of a line of rows, which begin with their step.
std::optional<std::int64_t> step_of(std::string_view line) {
  constexpr std::string_view name = "\"step\": ";
  const auto at = line.find(name);
  if (at == std::string_view::npos)
    return std::nullopt;
  std::int64_t step = 0;
  const char* const begin = line.data() + at + name.size();
  const auto read = std::from_chars(begin, line.data() + line.size(), step);
  return read.ec == std::errc{} ? std::optional(step) : std::nullopt;
}

/// What one line adds to the facts.
void take(LogFacts& facts, std::int64_t number, std::string_view kind, std::string_view line) {
  if (kind == Table<StepRow>::kind) {
    facts.last_step = step_of(line);
  } else if (kind == Table<CheckpointRow>::kind) {
    facts.last_checkpoint = step_of(line).value_or(0);
  } else if (kind == rewind_kind) {
    const std::int64_t step = step_of(line).value_or(0);
    facts.rewinds.add(number, step);
    if (facts.last_step)
      facts.last_step = std::min(*facts.last_step, step);
    facts.last_checkpoint = std::min(facts.last_checkpoint, step);
  } else if (kind == Table<SessionRow>::kind) {
    const Json object = parse_line(line);
    if (const auto found = object.find("facts"); found != object.end())
      if (const std::string id = text_in(*found, run_id_fact); !id.empty())
        facts.run_id = id;
  } else if (kind == tokenizer_kind) {
    facts.has_tokenizer = true;
  } else if (kind == run_file_kind) {
    const Json object = parse_line(line);
    facts.run_files[{whole_in(object, "bytes"), text_in(object, "crc32_of_file")}] = number;
  }
}

}  // namespace

void Rewinds::add(std::int64_t line, std::int64_t step) {
  for (auto at = lowest_.rbegin(); at != lowest_.rend() && at->second > step; ++at)
    at->second = step;
  lowest_.emplace_back(line, step);
}

bool Rewinds::keep(std::int64_t line, std::int64_t step) const {
  const auto later =
      std::ranges::upper_bound(lowest_, line, {}, &std::pair<std::int64_t, std::int64_t>::first);
  return later == lowest_.end() || step <= later->second;
}

void for_each_line(const std::string& path,
                   const std::function<void(std::int64_t, std::string_view)>& each) {
  const files::InputFile file(path);
  std::string text;  // from the beginning of a line on
  std::int64_t offset = 0, number = 0;
  for (bool more = true; more;) {
    const std::size_t old = text.size();
    text.resize(old + bytes_at_once);
    const std::size_t got =
        file.read_some(offset, std::as_writable_bytes(std::span(text.data() + old, bytes_at_once)));
    text.resize(old + got);
    offset += static_cast<std::int64_t>(got);
    more = got == bytes_at_once;
    std::size_t begin = 0;
    for (auto end = text.find('\n', old); end != std::string::npos; end = text.find('\n', begin)) {
      each(++number, std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
    if (text.size() > most_line_bytes)
      text.resize(1);  // not a line of ours; its end is still looked for
  }
}

LogFacts look_at_log(const std::string& path) {
  LogFacts facts;
  std::error_code problem;
  facts.exists = std::filesystem::exists(std::filesystem::symlink_status(path, problem));
  if (!facts.exists)
    return facts;
  for_each_line(path, [&](std::int64_t number, std::string_view line) {
    const std::string_view kind = kind_of(line);
    facts.last_line = number;
    if (kind.empty()) {
      facts.damaged.push_back(number);
      return;
    }
    if (kind == cut_kind && !facts.damaged.empty() && facts.damaged.back() == number - 1)
      facts.damaged.pop_back();
    take(facts, number, kind, line);
    ++facts.lines;
  });
  return facts;
}

std::string lines_text(const std::vector<std::int64_t>& lines) {
  constexpr std::size_t most = 5;
  std::string text = lines.size() == 1 ? "line " : "lines ";
  for (std::size_t i = 0; i < std::min(lines.size(), most); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", lines[i]);
  return lines.size() > most ? fmt::format("{} and {} more", text, lines.size() - most) : text;
}

RunLog::RunLog(std::string path, Open how) : path_(std::move(path)) {
  const int flags = how == Open::create ? O_CREAT | O_EXCL : 0;
  descriptor_ =
      ::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags, 0666);
  struct stat facts {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &facts) != 0)
    fail("open", std::strerror(errno));
  if (const char* other = files::other_than_file(facts.st_mode); *other != '\0')
    fail("open", fmt::format("{} is in its place", other));
  char last = '\n';
  if (facts.st_size > 0 && ::pread(descriptor_, &last, 1, facts.st_size - 1) != 1)
    fail("read", std::strerror(errno));
  if (last != '\n')
    append("\n" + log_line(cut_kind, ""));
}

RunLog::~RunLog() {
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

RunLog::RunLog(RunLog&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      waits_(other.waits_) {}

void RunLog::append(std::string_view line) {
  waits_ = true;
  while (!line.empty()) {
    const auto written = ::write(descriptor_, line.data(), line.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      fail("write", std::strerror(written < 0 ? errno : ENOSPC));
    line.remove_prefix(static_cast<std::size_t>(written));
  }
}

void RunLog::sync() {
  struct stat mine {
  }, there{};
  if (::fstat(descriptor_, &mine) != 0)
    fail("sync", std::strerror(errno));
  if (::stat(path_.c_str(), &there) != 0)
    fail("write", "it was removed or moved away while the run wrote it");
  if (mine.st_dev != there.st_dev || mine.st_ino != there.st_ino)
    fail("write", "another file is in its place");
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL)
    fail("sync", std::strerror(errno));
  waits_ = false;
}

void RunLog::fail(const char* what, const std::string& reason) {
  if (descriptor_ >= 0)
    ::close(std::exchange(descriptor_, -1));
  throw StorageError("record", fmt::format("{} {}", what, path_), reason, __FILE__, __LINE__);
}

}  // namespace trireme::record
