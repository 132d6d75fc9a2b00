// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_record.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "files/output_file.hpp"
#include "files/path.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/run/log_line.hpp"
#include "record/run/run_directory.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;

std::string log_in(const std::string& directory) {
  return fmt::format("{}/{}", directory, run_log_name);
}
std::string file_in(const std::string& directory) {
  return fmt::format("{}/{}", directory, run_file_name);
}

/// Distinct hosts in rank order.
std::string machine(const std::vector<std::string>& hosts) {
  std::vector<std::string> seen;
  for (const std::string& host : hosts)
    if (std::ranges::find(seen, host) == seen.end())
      seen.push_back(host);
  return fmt::format("{}", fmt::join(seen, " "));
}

/// Converts a deck value from YAML to JSON: a number stays a number, and text loses its quotes.
Json json_of_word(const std::string& word) {
  const Json value = Json::parse(word, nullptr, false);
  return value.is_number() || value.is_string() ? value : Json(word);
}

std::string session_line(const RunHeader& header, std::int64_t first_step) {
  Json facts = Json::object(), deck = Json::object();
  for (const auto& [name, value] : header.facts) facts[name] = value;
  for (const auto& [name, value] : header.counts) facts[name] = value;
  for (const auto& [name, value] : header.deck) deck[name] = json_of_word(value);
  return log_line(SessionRow::table.kind,
                  field("date_and_time", date_and_time()) + field("first_step", first_step) +
                      field("ranks", static_cast<std::int64_t>(header.hosts.size())) +
                      field("machine", machine(header.hosts)) + field("facts", facts) +
                      field("deck", deck));
}

/// The log line that states the present content of the file at `path`; nullopt if another program
/// created or changed the file.
std::optional<std::int64_t> line_of_file(const std::string& path, const LogFacts& facts) {
  const auto found = facts.run_files.find(size_and_sum(path));
  return found == facts.run_files.end() ? std::nullopt : std::optional(found->second);
}

std::string fields_of_file(std::int64_t bytes, const std::string& sum) {
  return field("bytes", bytes) + field("crc32_of_file", sum);
}

/// Reads the spans of earlier starts from run.h5. Adds a sentence to `warnings` if they are lost.
Spans earlier_spans(const std::string& path,
                    const LogFacts& facts,
                    std::vector<std::string>& warnings) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path, ignored)))
    return {};
  try {
    if (const auto line = line_of_file(path, facts))
      return read_spans(path, facts.rewinds, *line);
    warnings.push_back(
        fmt::format("{} was changed by another program. It was moved to {}, and is rebuilt from {} "
                    "without the spans of earlier starts",
                    path, move_aside(path, "changed"), run_log_name));
  } catch (const StorageError& problem) {
    warnings.push_back(
        fmt::format("cannot read the spans of earlier starts in {}, so they are lost: {}", path,
                    problem.what()));
  }
  return {};
}

/// Writes a new run.h5.tmp next to the file and syncs it.
void write_temporary(const std::string& temporary,
                     const std::string& log,
                     const Rewinds& rewinds,
                     const Spans& spans) {
  files::expect_writable_place(temporary);
  const bool is_left = ::access(temporary.c_str(), F_OK) == 0;  // left by a killed run
  if (is_left && ::unlink(temporary.c_str()) != 0)
    throw StorageError("record", "remove " + temporary, std::strerror(errno));
  try {
    write_run_file(temporary, log, rewinds, spans);
    files::sync_file(temporary);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

/// Writes run.h5 from the log and the spans. `note` appends and syncs the log line for it before
/// the file is renamed, because a later start trusts only a file with such a line.
template <class Note>
void replace_file(const std::string& directory,
                  const Rewinds& rewinds,
                  const Spans& spans,
                  Note&& note) {
  const std::string path = file_in(directory), temporary = path + ".tmp";
  write_temporary(temporary, log_in(directory), rewinds, spans);
  const auto [bytes, sum] = size_and_sum(temporary);
  note(log_line(run_file_kind, fields_of_file(bytes, sum)));
  files::rename(temporary, path);
  files::sync_directory(directory);
}

}  // namespace

RunRecord::RunRecord(std::string directory,
                     RunLog log,
                     std::int64_t first_step,
                     RunRecordOptions options)
    : directory_(std::move(directory)),
      log_(std::move(log)),
      first_step_(first_step),
      options_(std::move(options)) {
  last_sync_ = last_file_ = options_.clock();
}

void RunRecord::append_line(std::string_view kind, const std::string& fields) {
  log_.append(log_line(kind, fields));
  changed_ = true;
}

template <class Row>
requires(!std::ranges::range<Row>) void RunRecord::append(const Row& row) {
  append_line(Row::table.kind, fields_of(row));
  if constexpr (std::is_same_v<Row, CheckpointRow>)
    file_wanted_ = true;
}
template void RunRecord::append(const StepRow&);
template void RunRecord::append(const ValidationRow&);
template void RunRecord::append(const SkippedRow&);
template void RunRecord::append(const NoiseScaleRow&);
template void RunRecord::append(const NormRow&);
template void RunRecord::append(const RankSpanRow&);
template void RunRecord::append(const RankEnergyRow&);
template void RunRecord::append(const CheckpointRow&);

void RunRecord::start(const RunHeader& header, bool with_tokenizer) {
  log_.append(session_line(header, first_step_));
  if (with_tokenizer && !header.tokenizer.empty())
    append_line(tokenizer_kind, field("text", header.tokenizer));
  for (std::size_t bucket = 0; bucket < header.buckets.size(); ++bucket) {
    BucketRow row = header.buckets[bucket];
    row.first_step = first_step_;
    row.bucket = static_cast<std::int64_t>(bucket);
    append(row);
  }
  sync();
  files::sync_directory(directory_);
  write_file_or_warn();
}

void RunRecord::append(std::span<const device::TimeSample> spans) {
  const auto most = options_.span_bytes / static_cast<std::int64_t>(sizeof(device::TimeSample));
  const auto room = std::clamp<std::int64_t>(most - std::ssize(spans_), 0, std::ssize(spans));
  spans_.insert(spans_.end(), spans.begin(), spans.begin() + room);
  spans_left_out_ += std::ssize(spans) - room;
  changed_ = true;
}

void RunRecord::sync() {
  const double begin = options_.clock();
  log_.sync();
  last_sync_ = options_.clock();
  sync_took_ = last_sync_ - begin;
}

void RunRecord::do_due() {
  const double now = options_.clock();
  const double since_sync = now - last_sync_, since_file = now - last_file_;
  if (log_.waits() && since_sync >= options_.sync_seconds &&
      since_sync * options_.sync_share >= sync_took_)
    sync();
  if ((file_wanted_ || (changed_ && since_file >= options_.file_seconds)) &&
      since_file * options_.file_share >= file_took_)
    write_file_or_warn();
}

void RunRecord::write_file() {
  const double begin = options_.clock();
  file_wanted_ = changed_ = false;
  try {
    replace_file(directory_, rewinds_, spans_, [&](const std::string& line) {
      log_.append(line);
      sync();
    });
  } catch (...) {
    changed_ = true;
    last_file_ = options_.clock();
    throw;
  }
  last_file_ = options_.clock();
  file_took_ = last_file_ - begin;
}

void RunRecord::write_file_or_warn() {
  try {
    write_file();
    file_fails_ = false;
  } catch (const StorageError& problem) {
    if (!log_.usable())
      throw;
    if (!file_fails_)
      options_.warn(fmt::format(
          "cannot write {}: {}. The run continues and tries again later; all rows are in {}",
          file_in(directory_), problem.what(), log_.path()));
    file_fails_ = true;
  }
}

void RunRecord::close() {
  closed_ = true;
  sync();
  write_file();
}

RunRecord::~RunRecord() {
  if (closed_ || !log_.usable())
    return;
  try {
    close();
  } catch (const std::exception& problem) {
    error_line("warning: the end of the record could not be written: {}", problem.what());
  }
}

RunRecord RunRecord::create(const std::string& directory,
                            const RunHeader& header,
                            RunRecordOptions options,
                            std::int64_t step) {
  const std::string path = log_in(directory);
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored)))
    throw UserError(Place{path},
                    "the record of a run is here already: nothing was changed; choose another "
                    "run.directory");
  RunRecord record(directory, RunLog(path, RunLog::Open::create), step + 1, std::move(options));
  record.start(header, true);
  return record;
}

RunRecord RunRecord::resume(const std::string& directory,
                            const RunHeader& header,
                            std::int64_t step,
                            const LogFacts& before,
                            RunRecordOptions options) {
  const std::string path = log_in(directory), mine = fact_of(header.facts, run_id_fact);
  if (!mine.empty() && !before.run_id.empty() && before.run_id != mine)
    throw UserError(Place{path},
                    fmt::format("this is the record of another run ({}, and this one is {}): move "
                                "it away together with {}, and the run resumes with a new record",
                                before.run_id, mine, run_file_name));
  RunLog log(path, RunLog::Open::append);
  log.append(log_line(rewind_kind, field("step", step)));
  LogFacts facts = before;
  // The number of that line, or less if a line before it was cut off; no rows are in between.
  facts.rewinds.add(before.last_line + 1, step);
  std::vector<std::string> warnings;
  Spans spans = earlier_spans(file_in(directory), facts, warnings);
  for (const std::string& warning : warnings) options.warn(warning);
  RunRecord record(directory, std::move(log), step + 1, std::move(options));
  record.rewinds_ = std::move(facts.rewinds);
  record.spans_ = std::move(spans);
  record.start(header, !before.has_tokenizer);
  return record;
}

void RunRecord::replace_text_file(const char* name,
                                  const std::string& text,
                                  const LogFacts& before) {
  const std::string path = fmt::format("{}/{}", directory_, name);
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored)) && !line_of_file(path, before))
    options_.warn(fmt::format("{} is not a file that this run wrote. It was moved to {}", path,
                              move_aside(path, "changed")));
  append_line(run_file_kind, fields_of_file(static_cast<std::int64_t>(text.size()),
                                            fmt::format("{:08x}", crc32_of(text))));
  sync();
  files::replace_file(path, text);
}

void RunRecord::append(const std::string& set, const std::string& of, const EvaluationRow& row) {
  append_line(EvaluationRow::table.kind, fields_of(row) + field("set", set) + field("of", of));
}
void RunRecord::append_dropped(std::int64_t step, bool validation) {
  append_line(dropped_kind, field("step", step) +
                                field("what", std::string(validation ? ValidationRow::table.kind
                                                                     : EvaluationRow::table.kind)));
}
void RunRecord::set_timing_fact(const std::string& name, double value, std::string_view unit) {
  append_line(timing_fact_kind,
              field("name", name) + field("value", value) + field("unit", std::string(unit)));
}
void RunRecord::set_anchors(std::span<const double> seconds) {
  for (std::size_t rank = 0; rank < seconds.size(); ++rank)
    append(AnchorRow{first_step_, static_cast<std::int64_t>(rank), seconds[rank]});
}
void RunRecord::set_memory(const std::string& name, std::int64_t bytes) {
  append_line(memory_kind, field("name", name) + field("bytes", bytes));
}

void expect_record(const std::string& directory) {
  const std::string path = log_in(directory);
  if (const LogFacts facts = look_at_log(path); facts.lines == 0)
    throw UserError(Place{path}, facts.exists ? "the file contains no line of a run's record"
                                              : "there is no record: name the directory of a run");
}

std::vector<std::string> rebuild_run_file(const std::string& directory) {
  const std::string path = log_in(directory);
  const LogFacts facts = look_at_log(path);
  std::vector<std::string> said;
  if (!facts.damaged.empty())
    said.push_back(fmt::format("{}: {} damaged and skipped", path, lines_text(facts.damaged)));
  const Spans spans = earlier_spans(file_in(directory), facts, said);
  RunLog log(path, RunLog::Open::append);
  replace_file(directory, facts.rewinds, spans, [&](const std::string& line) {
    log.append(line);
    log.sync();
  });
  said.push_back(fmt::format("wrote {}: {} lines, up to step {}, and {} spans", file_in(directory),
                             facts.lines, facts.last_step.value_or(0), spans.size()));
  return said;
}

bool run_file_is_behind(const std::string& directory) {
  const LogFacts facts = look_at_log(log_in(directory));
  const std::string path = file_in(directory);
  std::error_code ignored;
  if (facts.lines == 0 || !fs::exists(fs::symlink_status(path, ignored)))
    return facts.lines > 0;
  const auto line = line_of_file(path, facts);
  return line && *line < facts.last_line;
}

}  // namespace trireme::record
