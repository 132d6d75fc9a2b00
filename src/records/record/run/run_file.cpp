// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <utility>

#include <sys/stat.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "files/path.hpp"

#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/journal.hpp"
#include "h5/space.hpp"
#include "record/also/also_files.hpp"
#include "record/run/row_hashes.hpp"
#include "record/run/run_identity.hpp"
#include "record/run/run_schema.hpp"
#include "record/run/run_session.hpp"

namespace trireme::record {
namespace {

using device::TimeSample;

/// Samples that may wait before they are written ahead of time: 2 MiB.
constexpr std::size_t most_waiting_samples = std::size_t{1} << 16;

/// The name of the file at `path`, which is on the disk when this returns.
void sync_name(const std::string& path) {
  const auto directory = std::filesystem::absolute(path).parent_path();
  files::sync_directory(directory.string());
}

constexpr const char* run_id_fact = "run_id";

std::string run_id_in(const RunHeader& header) {
  const auto found = std::ranges::find(header.facts, run_id_fact, &NameValues::value_type::first);
  return found == header.facts.end() ? "" : found->second;
}

}  // namespace

class RunFile::Impl {
 public:
  /// `first_step` is the first that this start may record.
  Impl(const std::string& path, h5::File file, std::int64_t first_step, RunFileOptions options)
      : path_(path),
        file_(std::move(file)),
        room_(path),
        first_step_(first_step),
        options_(std::move(options)) {
    last_flush_ = options_.clock();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (!failed_)
      return;
    for (h5::Dataset& dataset : columns_) dataset.abandon();
    for (h5::Dataset& dataset : open_) dataset.abandon();
    h5::abandon(std::move(file_));
  }

  /// Throws UserError when the file is another run's.
  void expect_run_of(const RunHeader& header) const;
  void open_datasets();
  void start_new(const RunHeader& header) {
    change([&] {
      make_datasets(file_);
      open_datasets();
      write_facts(file_, header);
      start_session(file_, header, first_step_);
    });
    flush();
  }
  /// Requires: open_datasets().
  void start_again(const RunHeader& header) {
    change([&] {
      expect_names(file_);
      warnings_ = drop_after(file_, first_step_ - 1);
      open_datasets();
      start_session(file_, header, first_step_);
    });
    flush();
  }

  void append(const StepRow& row) {
    rows_.push_back(row);
    flush_if_due();
  }
  void append(const ValidationRow& row) {
    validations_.push_back(row);
    flush_if_due();
  }
  void append(const std::string& set, const std::string& of, const EvaluationRow& row) {
    change([&] { record::append_evaluation(file_, set, of, row); });
  }
  void append(const CheckpointRow& row) {
    change([&] {
      append_rows(h5::open_group(file_.get(), "checkpoints").get(), checkpoint_columns,
                  std::span(&row, 1));
      hash_rows(file_, HashedTable::checkpoints, 1);
    });
  }
  void append(const SkippedRow& row) {
    change([&] {
      append_rows(h5::open_group(file_.get(), "skipped").get(), skipped_columns,
                  std::span(&row, 1));
    });
  }
  void append(const NoiseScaleRow& row) {
    noise_scales_.push_back(row);
    flush_if_due();
  }
  void append(std::span<const RankSpanRow> rows) {
    change([&] {
      append_rows(h5::open_group(file_.get(), "timings/ranks").get(), rank_span_columns, rows);
    });
  }
  void append_samples(std::span<const TimeSample> samples) {
    samples_.insert(samples_.end(), samples.begin(), samples.end());
    flush_if_due();
  }
  void set_timing_fact(const std::string& name, double value, std::string_view unit) {
    change([&] {
      const h5::Group group = h5::open_group(file_.get(), "timings");
      h5::write_attribute(group.get(), name, value);
      h5::write_attribute(group.get(), name + "_unit", std::string(unit));
    });
  }
  void set_memory(const std::string& name, std::int64_t bytes) {
    change([&] { h5::write_attribute(h5::open_group(file_.get(), "memory").get(), name, bytes); });
  }
  void set_anchors(std::span<const double> seconds);
  void write_waiting();
  void flush();
  [[nodiscard]] RecordedRows rows() const;
  void also(std::unique_ptr<AlsoFiles> files) { also_ = std::move(files); }
  [[nodiscard]] std::exception_ptr also_problem() const {
    return also_ ? also_->problem() : nullptr;
  }
  void close() {
    flush();
    columns_.clear();
    open_.clear();
    h5::close(std::move(file_));
    room_.release();
  }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  [[nodiscard]] bool usable() const { return file_ && !failed_; }

 private:
  /// Changes the file; when that fails half-way, what was not flushed yet is given up.
  template <class What>
  void change(What&& what) {
    make_room();
    try {
      what();
    } catch (...) {
      failed_ = true;
      throw;
    }
  }
  void flush_if_due() {
    const std::size_t waiting = rows_.size() + validations_.size() + noise_scales_.size();
    const double since = options_.clock() - last_flush_;
    const bool due = waiting >= options_.flush_rows || since >= options_.flush_seconds;
    if (samples_.size() >= most_waiting_samples ||
        (due && since * options_.flush_share >= flush_took_))
      flush();
  }
  /// Throws StorageError when the file is no longer at its path: what HDF5 writes would be lost.
  void expect_in_place();
  /// For what waits and what HDF5 adds to it (chunks, their index), so that a disk that is full is
  /// found before the file is changed. The file stays whole, and this object usable.
  void make_room() {
    if (options_.rehearsal)
      return;
    expect_in_place();
    constexpr std::int64_t most_added = std::int64_t{1} << 20;
    const std::size_t waiting =
        rows_.size() * sizeof(StepRow) + samples_.size() * sizeof(TimeSample);
    room_.ensure(h5::end_of(file_), most_added + 2 * static_cast<std::int64_t>(waiting));
  }

  const std::string path_;
  std::pair<dev_t, ino_t> place_{};  ///< of the file, once it was seen
  h5::File file_;
  h5::Room room_;
  std::vector<std::string> warnings_;
  const std::int64_t first_step_;
  RunFileOptions options_;
  std::vector<h5::Dataset> columns_;  ///< as step_columns
  std::vector<h5::Dataset> open_;     ///< as validation_columns, then the samples
  std::vector<StepRow> rows_;
  std::vector<ValidationRow> validations_;
  std::vector<NoiseScaleRow> noise_scales_;
  std::vector<TimeSample> samples_;
  double last_flush_ = 0;  ///< when it ended
  double flush_took_ = 0;
  std::unique_ptr<AlsoFiles> also_;
  bool failed_ = false;
};

void RunFile::Impl::open_datasets() {
  columns_.clear();
  open_.clear();
  for (const auto& column : step_columns)
    columns_.push_back(h5::Dataset::open(file_.get(), std::string("steps/") + column.name));
  for (const auto& column : validation_columns)
    open_.push_back(h5::Dataset::open(file_.get(), std::string("validation/") + column.name));
  open_.push_back(h5::Dataset::open(file_.get(), "timings/samples"));
}

void RunFile::Impl::set_anchors(std::span<const double> seconds) {
  change([&] {
    for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
      append_one(file_, "timings/anchors/first_step", first_step_);
      append_one(file_, "timings/anchors/rank", static_cast<std::int64_t>(rank));
      append_one(file_, "timings/anchors/calendar_s", seconds[rank]);
    }
  });
}

void RunFile::Impl::write_waiting() {
  for (std::size_t i = 0; i < columns_.size() && !rows_.empty(); ++i)
    append_column(columns_[i], step_columns[i], std::span<const StepRow>(rows_));
  hash_rows(file_, HashedTable::steps, std::ssize(rows_));
  rows_.clear();
  for (std::size_t i = 0; i + 1 < open_.size() && !validations_.empty(); ++i)
    append_column(open_[i], validation_columns[i], std::span<const ValidationRow>(validations_));
  hash_rows(file_, HashedTable::validation, std::ssize(validations_));
  validations_.clear();
  if (!noise_scales_.empty())
    append_rows(h5::open_group(file_.get(), "noise_scale").get(), noise_scale_columns,
                std::span<const NoiseScaleRow>(noise_scales_));
  hash_rows(file_, HashedTable::noise_scales, std::ssize(noise_scales_));
  noise_scales_.clear();
  open_.back().append(static_cast<std::int64_t>(samples_.size()), sample_type(), samples_.data());
  hash_rows(file_, HashedTable::samples, std::ssize(samples_));
  samples_.clear();
}

void RunFile::Impl::expect_run_of(const RunHeader& header) const {
  const std::string mine = run_id_in(header);
  if (mine.empty() || !h5::has_attribute(file_.get(), run_id_fact))
    return;
  const auto theirs = h5::read_attribute<std::string>(file_.get(), run_id_fact);
  if (theirs != mine)
    throw UserError(Place{path_},
                    fmt::format("this is the record of another run ({}, and this one is "
                                "{}): {}",
                                theirs, mine, move_away));
}

void RunFile::Impl::expect_in_place() {
  struct stat facts {};
  const bool there = ::stat(path_.c_str(), &facts) == 0;
  const std::pair found{facts.st_dev, facts.st_ino};
  if (there && place_ == std::pair<dev_t, ino_t>{})
    place_ = found;
  if (!there || place_ != found)
    throw StorageError("record", "write " + path_,
                       there ? "another file is in its place"
                             : "it was removed or moved away while the run wrote it",
                       __FILE__, __LINE__);
}

void RunFile::Impl::flush() {
  const double begin = options_.clock();
  RecordedRows flushed;
  if (also_)
    flushed = {rows_, validations_};
  change([&] {
    write_waiting();
    h5::flush(file_);
  });
  if (also_)
    also_->add(flushed.steps, flushed.validation);
  last_flush_ = options_.clock();
  flush_took_ = last_flush_ - begin;
}

RecordedRows RunFile::Impl::rows() const {
  RecordedRows found;
  read_rows(file_, "steps", step_columns, found.steps);
  read_rows(file_, "validation", validation_columns, found.validation);
  return found;
}

RunFile::RunFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunFile::RunFile(RunFile&&) noexcept = default;
RunFile& RunFile::operator=(RunFile&&) noexcept = default;

RunFile::~RunFile() {
  if (!impl_ || !impl_->usable())
    return;
  const bool known = impl_->also_problem() != nullptr;
  try {
    impl_->flush();
    if (!known && impl_->also_problem())
      std::rethrow_exception(impl_->also_problem());
  } catch (const std::exception& problem) {
    error_line("warning: the last rows of the run file, or of a copy of it, are lost: {}",
               problem.what());
  }
}

RunFile RunFile::create(const std::string& path,
                        const RunHeader& header,
                        RunFileOptions options,
                        std::int64_t step) {
  if (h5::probe(path) != h5::Probe::absent)
    throw UserError(
        Place{path},
        "a run file is here already: nothing was changed; choose another run.directory");
  auto impl = std::make_unique<Impl>(path, h5::create_file(path, h5::Writes::journaled), step + 1,
                                     std::move(options));
  try {
    impl->start_new(header);
    sync_name(path);
  } catch (...) {
    impl.reset();
    std::remove(path.c_str());  // ours, and of no use to anyone
    std::remove(h5::journal_of(path).c_str());
    throw;
  }
  return RunFile(std::move(impl));
}

RunFile RunFile::resume(const std::string& path,
                        const RunHeader& header,
                        std::int64_t step,
                        RunFileOptions options) {
  expect_run_file(path);
  const bool rehearsal = options.rehearsal;
  auto impl = std::make_unique<Impl>(
      path,
      h5::open_file(path, h5::Access::read_write,
                    rehearsal ? h5::Writes::rehearsed : h5::Writes::journaled),
      step + 1, std::move(options));
  try {
    impl->expect_run_of(header);
    impl->open_datasets();
  } catch (const h5::DamagedError& problem) {
    throw UserError(Place{path},
                    fmt::format("the run file is damaged: {}: {}", problem.what(), move_away));
  }
  impl->start_again(header);
  if (!rehearsal)
    sync_name(path);  // which may have been moved here
  return RunFile(std::move(impl));
}

const std::vector<std::string>& RunFile::warnings() const {
  return impl_->warnings();
}
void RunFile::append(const StepRow& row) {
  impl_->append(row);
}
void RunFile::append_validation(const ValidationRow& row) {
  impl_->append(row);
}
void RunFile::append_evaluation(const std::string& set,
                                const std::string& of,
                                const EvaluationRow& row) {
  impl_->append(set, of, row);
}
void RunFile::append_checkpoint(const CheckpointRow& row) {
  impl_->append(row);
}
void RunFile::append_skipped(const SkippedRow& row) {
  impl_->append(row);
}
void RunFile::append_noise_scale(const NoiseScaleRow& row) {
  impl_->append(row);
}
void RunFile::append_rank_spans(std::span<const RankSpanRow> rows) {
  impl_->append(rows);
}
void RunFile::append_samples(std::span<const device::TimeSample> samples) {
  impl_->append_samples(samples);
}
void RunFile::set_timing_fact(const std::string& name, double value, std::string_view unit) {
  impl_->set_timing_fact(name, value, unit);
}
void RunFile::set_anchors(std::span<const double> seconds) {
  impl_->set_anchors(seconds);
}
void RunFile::set_memory(const std::string& name, std::int64_t bytes) {
  impl_->set_memory(name, bytes);
}
RecordedRows RunFile::rows() const {
  return impl_->rows();
}
void RunFile::also(std::unique_ptr<AlsoFiles> files) {
  impl_->also(std::move(files));
}
std::exception_ptr RunFile::also_problem() const {
  return impl_->also_problem();
}
void RunFile::flush() {
  impl_->flush();
}
void RunFile::close() {
  impl_->close();
}

}  // namespace trireme::record
