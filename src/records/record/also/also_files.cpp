// SPDX-License-Identifier: Apache-2.0
#include "record/also/also_files.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/input_file.hpp"
#include "files/path.hpp"

#include "record/also/row_text.hpp"
#include "record/run/move_aside.hpp"

namespace trireme::record {
namespace {

/// Bytes that are handed to the operating system at a time while a file is rewritten.
constexpr std::size_t most_at_once = std::size_t{1} << 20;

/// The whole lines of steps before `end`; nothing when the text has other lines than ours.
std::optional<std::string> lines_before(std::string_view text, std::int64_t end) {
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

template <class Row>
void append(AppendFile& file, std::span<const Row> rows) {
  std::string text;
  for (const Row& row : rows) {
    text += json_line(row);
    if (text.size() >= most_at_once) {
      file.append(text);
      text.clear();
    }
  }
  file.append(text);
}

/// Rewrites the file and leaves it open.
template <class Row>
AppendFile open(const std::string& path,
                const std::vector<Row>& there,
                std::int64_t first_step,
                std::vector<std::string>& warnings) {
  const std::string next = path + ".tmp";
  const std::int64_t first = there.empty() ? first_step : there.front().step;
  std::string before;
  if (std::filesystem::exists(path)) {
    files::expect_writable_place(path);  // opening a FIFO would block
    const auto kept = lines_before(files::read_whole(path), first);
    if (kept)
      before = *kept;
    else
      warnings.push_back(
          fmt::format("{} was not written by this version of trireme. Moved it to {}.", path,
                      move_aside(path, "other")));
  }
  if (::unlink(next.c_str()) != 0 && errno != ENOENT)
    throw StorageError("record.also", "remove " + next, std::strerror(errno), __FILE__, __LINE__);
  AppendFile file(next, AppendFile::Open::anew);
  file.append(before);
  append(file, std::span<const Row>(there));
  file.replace(path);
  return file;
}

}  // namespace

AlsoFiles::AlsoFiles(const std::string& run_directory,
                     const RecordedRows& there,
                     std::int64_t first_step,
                     std::vector<std::string>& warnings)
    : steps_(open(fmt::format("{}/{}", run_directory, json_lines_names[0]),
                  there.steps,
                  first_step,
                  warnings)),
      validation_(open(fmt::format("{}/{}", run_directory, json_lines_names[1]),
                       there.validation,
                       first_step,
                       warnings)) {}

void AlsoFiles::add(std::span<const StepRow> steps,
                    std::span<const ValidationRow> validation) noexcept {
  if (problem_)
    return;
  try {
    append(steps_, steps);
    append(validation_, validation);
  } catch (...) {
    problem_ = std::current_exception();
  }
}

}  // namespace trireme::record
