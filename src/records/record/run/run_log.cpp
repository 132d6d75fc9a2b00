// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_log.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <span>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include "base/error.hpp"
#include "files/path.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/run/log_line.hpp"

namespace trireme::record {
namespace {

constexpr std::string_view before_kind = "{\"kind\": \"", before_sum = ", \"crc32\": \"";
constexpr std::string_view after_sum = "\"}";
constexpr std::size_t sum_digits = 8;

std::string sum_of(std::string_view bytes) {
  return fmt::format("{:08x}", crc32_of(bytes));
}

/// Limits the length of a line, because a damaged log may have no line feed at all.
constexpr std::size_t most_line_bytes = std::size_t{64} << 20U,
                      bytes_at_once = std::size_t{1} << 20U;

/// The step of a line; lines of rows begin with it.
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

/// Clears a dropped evaluation after `step` or, with `order` std::greater, after a later step.
template <class Order = std::equal_to<>>
void forget(std::optional<std::int64_t>& dropped, std::int64_t step, Order order = {}) {
  if (dropped && order(*dropped, step))
    dropped.reset();
}

/// Adds one line to the facts.
void take(LogFacts& facts, std::int64_t number, std::string_view kind, std::string_view line) {
  if (kind == StepRow::table.kind) {
    facts.last_step = step_of(line);
  } else if (kind == CheckpointRow::table.kind) {
    facts.last_checkpoint = step_of(line).value_or(0);
  } else if (kind == rewind_kind) {
    const std::int64_t step = step_of(line).value_or(0);
    facts.rewinds.add(number, step);
    if (facts.last_step)
      facts.last_step = std::min(*facts.last_step, step);
    facts.last_checkpoint = std::min(facts.last_checkpoint, step);
    forget(facts.dropped_validation, step, std::greater{});
    forget(facts.dropped_evaluation, step, std::greater{});
  } else if (kind == dropped_kind) {
    const bool validation =
        member<std::string>(parse_line(line), "what") == ValidationRow::table.kind;
    (validation ? facts.dropped_validation : facts.dropped_evaluation) = step_of(line);
  } else if (kind == ValidationRow::table.kind) {
    forget(facts.dropped_validation, step_of(line).value_or(0));
  } else if (kind == EvaluationRow::table.kind) {
    forget(facts.dropped_evaluation, step_of(line).value_or(0));
  } else if (kind == SessionRow::table.kind) {
    const Json object = parse_line(line);
    if (const auto found = object.find("facts"); found != object.end())
      if (const std::string id = member<std::string>(*found, run_id_fact); !id.empty())
        facts.run_id = id;
  } else if (kind == tokenizer_kind) {
    facts.has_tokenizer = true;
  } else if (kind == run_file_kind) {
    const Json object = parse_line(line);
    facts.run_files[{member<std::int64_t>(object, "bytes"),
                     member<std::string>(object, "crc32_of_file")}] = number;
  }
}

}  // namespace

std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before) {
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return static_cast<std::uint32_t>(::crc32_z(before, data, bytes.size()));
}

std::string log_line(std::string_view kind, const std::string& fields) {
  std::string line = fmt::format("{}{}\"{}", before_kind, kind, fields);
  line += fmt::format("{}{}{}\n", before_sum, sum_of(line), after_sum);
  return line;
}

std::string_view kind_of(std::string_view line) {
  const std::size_t end = before_sum.size() + sum_digits + after_sum.size();
  if (!line.starts_with(before_kind) || line.size() < before_kind.size() + end)
    return {};
  const std::string_view summed = line.substr(0, line.size() - end);
  const std::string_view sum = line.substr(summed.size());
  if (!sum.starts_with(before_sum) || !sum.ends_with(after_sum) ||
      sum.substr(before_sum.size(), sum_digits) != sum_of(summed))
    return {};
  const std::string_view from_kind = summed.substr(before_kind.size());
  return from_kind.substr(0, from_kind.find('"'));
}

Json parse_line(std::string_view line) {
  Json object = Json::parse(line, nullptr, false);
  return object.is_object() ? object : Json::object();
}

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
  std::string text;  // starts at the beginning of a line
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
      text.resize(1);  // not a valid line; only find its end
  }
}

LogFacts look_at_log(const std::string& path) {
  LogFacts facts;
  facts.exists = files::exists(path);
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
  const auto first = std::span(lines).first(std::min(lines.size(), most));
  const std::string text =
      fmt::format("{} {}", lines.size() == 1 ? "line" : "lines", fmt::join(first, ", "));
  return lines.size() > most ? fmt::format("{} and {} more", text, lines.size() - most) : text;
}

RunLog::RunLog(std::string path, Open how)
    : file_(files::Descriptor::regular(
          std::move(path), O_RDWR | O_APPEND | (how == Open::create ? O_CREAT | O_EXCL : 0))) {
  std::byte last{'\n'};
  if (const std::int64_t bytes = file_.size(); bytes > 0)
    static_cast<void>(file_.read_some(bytes - 1, std::span(&last, 1)));
  if (last != std::byte{'\n'})
    append("\n" + log_line(cut_kind, ""));
}

void RunLog::append(std::string_view line) {
  waits_ = true;
  usable_ = false;
  file_.write(line);
  usable_ = true;
}

void RunLog::sync() {
  usable_ = false;
  if (!file_.in_place())
    throw StorageError("record", "write " + path(),
                       std::filesystem::exists(path())
                           ? "another file is in its place"
                           : "it was removed or moved away while the run wrote it");
  file_.sync();
  usable_ = true;
  waits_ = false;
}

}  // namespace trireme::record
