// SPDX-License-Identifier: Apache-2.0
#include "record/also/also_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/input_file.hpp"

#include "h5/file.hpp"

#include "timing/recorder.hpp"

#include "record/also/append_file.hpp"
#include "record/also/event_file.hpp"
#include "record/also/row_text.hpp"
#include "record/run/move_aside.hpp"
#include "record/run/run_schema.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;

constexpr const char* event_directory = "tensorboard";
constexpr std::string_view event_prefix = "events.out.tfevents.";

/// Bytes that are handed to the operating system at a time while a file is made anew.
constexpr std::size_t most_at_once = std::size_t{1} << 20;

template <class Row>
constexpr const char* table_name = "steps";
template <>
constexpr const char* table_name<ValidationRow> = "validation";

constexpr const auto& columns_of(const StepRow&) {
  return step_columns;
}
constexpr const auto& columns_of(const ValidationRow&) {
  return validation_columns;
}

template <class Row>
std::string line_of(AlsoFormat format, const Row& row) {
  return format == AlsoFormat::csv ? csv_line(row) : json_line(row);
}

/// What a file of ours begins with, before its rows.
template <class Row>
std::string head_of(AlsoFormat format) {
  return format == AlsoFormat::csv ? csv_header(Row{}) : "";
}

/// The whole lines of steps before `end` in a text file; nothing when it is not of this format.
std::optional<std::string> lines_before(std::string_view text,
                                        std::string_view head,
                                        std::int64_t end) {
  if (!text.starts_with(head))
    return std::nullopt;
  text.remove_prefix(head.size());
  std::string kept;
  for (auto stop = text.find('\n'); stop != std::string_view::npos; stop = text.find('\n')) {
    const auto step = step_of_line(text.substr(0, stop));
    if (!step)
      return std::nullopt;
    if (*step >= end)
      break;
    kept += text.substr(0, stop + 1);
    text.remove_prefix(stop + 1);
  }
  return kept;
}

}  // namespace

/// One of the formats, for both tables.
class AlsoFiles::Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;
  virtual void add(std::span<const StepRow> steps, std::span<const ValidationRow> validation) = 0;
};

class AlsoFiles::TextSink : public Sink {
 public:
  TextSink(const std::string& directory,
           AlsoFormat format,
           const RecordedRows& there,
           std::int64_t first_step,
           std::vector<std::string>& warnings)
      : format_(format),
        steps_(open<StepRow>(directory, there.steps, first_step, warnings)),
        validation_(open<ValidationRow>(directory, there.validation, first_step, warnings)) {}

  void add(std::span<const StepRow> steps, std::span<const ValidationRow> validation) override {
    append(steps_, steps);
    append(validation_, validation);
  }

 private:
  template <class Row>
  void append(AppendFile& file, std::span<const Row> rows) const {
    std::string text;
    for (const Row& row : rows) {
      text += line_of(format_, row);
      if (text.size() >= most_at_once) {
        file.append(text);
        text.clear();
      }
    }
    file.append(text);
  }

  /// Makes the file anew and leaves it open.
  template <class Row>
  AppendFile open(const std::string& directory,
                  const std::vector<Row>& there,
                  std::int64_t first_step,
                  std::vector<std::string>& warnings) const {
    const std::string path = fmt::format("{}/{}.{}", directory, table_name<Row>, word(format_)),
                      next = path + ".tmp";
    const std::int64_t first = there.empty() ? first_step : there.front().step;
    std::string before;
    if (fs::exists(path)) {
      expect_writable_place(path);  // a FIFO would be waited for
      const auto kept = lines_before(read_whole(path), head_of<Row>(format_), first);
      if (kept)
        before = *kept;
      else
        warnings.push_back(fmt::format("{} is no file of this version of record.also: it is now {}",
                                       path, move_aside(path, "other")));
    }
    if (::unlink(next.c_str()) != 0 && errno != ENOENT)
      throw StorageError("record.also", "remove " + next, std::strerror(errno), __FILE__, __LINE__);
    AppendFile file(next, AppendFile::Open::anew);
    file.append(head_of<Row>(format_) + before);
    append(file, std::span<const Row>(there));
    file.replace(path);
    return file;
  }

  const AlsoFormat format_;
  AppendFile steps_, validation_;
};

class AlsoFiles::EventSink : public Sink {
 public:
  EventSink(const std::string& directory, const RecordedRows& there, std::int64_t first_step)
      : file_(open(directory + "/" + event_directory)) {
    const double now = timing::calendar_seconds();
    std::string events = version_event(now);
    if (earlier_ > 0)
      events += restart_event(now, first_step);
    file_.append(events);
    if (earlier_ == 0)
      add(there.steps, there.validation);
  }

  void add(std::span<const StepRow> steps, std::span<const ValidationRow> validation) override {
    const double now = timing::calendar_seconds();
    std::string events;
    const auto put = [&](const auto& rows) {
      for (const auto& row : rows) {
        events += event_of(row, now);
        if (events.size() >= most_at_once) {
          file_.append(events);
          events.clear();
        }
      }
    };
    put(steps);
    put(validation);
    file_.append(events);
  }

 private:
  template <class Row>
  static std::string event_of(const Row& row, double now) {
    std::vector<std::pair<std::string, float>> scalars;
    for (const auto& column : columns_of(row)) {
      const std::string name = column.name;
      const auto value =
          std::visit([&](auto member) { return static_cast<double>(row.*member); }, column.member);
      const bool unknown = name == "bits_per_byte" && std::isnan(value);
      if (name != "step" && !unknown)
        scalars.emplace_back(std::string(table_name<Row>) + "/" + name, static_cast<float>(value));
    }
    return scalars_event(now, row.step, scalars);
  }

  /// A new file whose name comes after those of earlier starts: TensorBoard reads them in the order
  /// of their names.
  AppendFile open(const std::string& directory) {
    h5::make_directories(directory);
    std::int64_t seconds = static_cast<std::int64_t>(timing::calendar_seconds());
    for (const auto& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(event_prefix))
        continue;
      ++earlier_;
      const std::int64_t theirs = std::atoll(name.c_str() + event_prefix.size());
      seconds = std::max(seconds, theirs + 1);
    }
    char host[256] = "host";
    ::gethostname(host, sizeof host - 1);
    AppendFile file(fmt::format("{}/{}{:010}.{}", directory, event_prefix, seconds, host),
                    AppendFile::Open::anew);
    h5::sync_directory(directory);
    return file;
  }

  std::int64_t earlier_ = 0;  ///< event files of earlier starts
  AppendFile file_;
};

std::vector<std::string> also_names(AlsoFormat format) {
  if (format == AlsoFormat::tensorboard)
    return {event_directory};
  return {fmt::format("steps.{}", word(format)), fmt::format("validation.{}", word(format))};
}

AlsoFiles::AlsoFiles(const std::string& run_directory,
                     std::span<const AlsoFormat> formats,
                     const RecordedRows& there,
                     std::int64_t first_step,
                     std::vector<std::string>& warnings) {
  for (const AlsoFormat format : formats)
    if (format == AlsoFormat::tensorboard)
      sinks_.push_back(std::make_unique<EventSink>(run_directory, there, first_step));
    else
      sinks_.push_back(
          std::make_unique<TextSink>(run_directory, format, there, first_step, warnings));
}

AlsoFiles::~AlsoFiles() = default;

void AlsoFiles::add(std::span<const StepRow> steps,
                    std::span<const ValidationRow> validation) noexcept {
  if (problem_)
    return;
  try {
    for (const auto& sink : sinks_) sink->add(steps, validation);
  } catch (...) {
    problem_ = std::current_exception();
  }
}

}  // namespace trireme::record
