// SPDX-License-Identifier: Apache-2.0
#include "record/run_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <numeric>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/error.hpp"

#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"

#include "record/date.hpp"

namespace trireme::record {
namespace {

using timing::Sample;

constexpr const char* filetype = "trireme-run";
constexpr std::int64_t version_major = 1, version_minor = 2;
/// Elements that a dataset grows by on disk: 8 KiB to 128 KiB per column.
constexpr std::int64_t chunk_rows = 1024, chunk_samples = 4096, chunk_few = 64;
/// Samples that may wait before they are written ahead of time: 2 MiB.
constexpr std::size_t most_waiting_samples = std::size_t{1} << 16;

struct StepColumn {
  const char* name;
  const char* unit;
  const char* help;
  std::variant<std::int64_t StepRow::*, double StepRow::*> member;
};
constexpr StepColumn step_columns[] = {
    {"step", "steps", "Counts from 1.", &StepRow::step},
    {"loss", "nat/token", "Mean over the global batch, before the step's update.", &StepRow::loss},
    {"grad_norm", "1", "Euclidean norm of the whole gradient, before clipping.",
     &StepRow::grad_norm},
    {"learning_rate", "1", "As the step used it.", &StepRow::learning_rate},
    {"tokens", "tokens", "Trained on since the run began, this step included.", &StepRow::tokens},
    {"seconds", "s", "Wall time of the step, without evaluation and checkpoints.",
     &StepRow::seconds},
    {"tokens_per_s", "tokens/s", "All ranks together.", &StepRow::tokens_per_s},
    {"flops_per_s", "FLOP/s", "All ranks together, by the model's FLOP formula.",
     &StepRow::flops_per_s},
    {"exposed_s", "s", "Compute waited for the network, on rank 0.", &StepRow::exposed_s},
    {"allocations", "allocations", "Scratch requests that the pool could not serve.",
     &StepRow::allocations},
};

struct CheckpointColumn {
  const char* name;
  const char* unit;
  const char* help;
  std::variant<std::int64_t CheckpointRow::*, double CheckpointRow::*> member;
};
constexpr CheckpointColumn checkpoint_columns[] = {
    {"step", "steps", "Steps done when it was taken.", &CheckpointRow::step},
    {"bytes", "byte", "Files of all ranks.", &CheckpointRow::bytes},
    {"copy_s", "s", "Copying the state before the run went on.", &CheckpointRow::copy_s},
    {"stall_s", "s", "The run stood still for it, the copy included.", &CheckpointRow::stall_s},
    {"write_s", "s", "From the first byte to the last fsync, without waits between steps.",
     &CheckpointRow::write_s},
};

struct BucketColumn {
  const char* name;
  const char* unit;
  const char* help;
  std::variant<std::int64_t BucketRow::*, std::string BucketRow::*> member;
};
constexpr BucketColumn bucket_columns[] = {
    {"first_parameter", "", "The first that backward finishes.", &BucketRow::first_parameter},
    {"last_parameter", "", "The last; those between them lie between them in the model.",
     &BucketRow::last_parameter},
    {"elements", "elements", "Padding included.", &BucketRow::elements},
    {"padding", "elements", "Between parameters and at the end.", &BucketRow::padding},
    {"shard_elements", "elements", "Of one rank.", &BucketRow::shard_elements},
};

/// Distinct hosts in rank order.
std::string machine(const std::vector<std::string>& hosts) {
  std::vector<std::string> seen;
  std::string text;
  for (const std::string& host : hosts)
    if (std::ranges::find(seen, host) == seen.end()) {
      seen.push_back(host);
      text += (text.empty() ? "" : " ") + host;
    }
  return text;
}

std::string lines_of(const NameValues& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + ": " + value + "\n";
  return text;
}

h5::Type sample_type() {
  const auto u32 = h5::type_of<std::uint32_t>(), u16 = h5::type_of<std::uint16_t>();
  const auto f64 = h5::type_of<double>();
  return h5::compound_type(sizeof(Sample), {{"step", offsetof(Sample, step), u32},
                                            {"micro", offsetof(Sample, micro), u16},
                                            {"name", offsetof(Sample, name), u16},
                                            {"index", offsetof(Sample, index), u32},
                                            {"rank", offsetof(Sample, rank), u32},
                                            {"begin_s", offsetof(Sample, begin_s), f64},
                                            {"duration_s", offsetof(Sample, duration_s), f64}});
}

h5::Dataset add_dataset(hid_t parent,
                        const char* name,
                        const h5::Type& type,
                        std::int64_t chunk,
                        const char* unit,
                        const char* help) {
  h5::Dataset dataset = h5::Dataset::create_extendible(parent, name, type, chunk);
  h5::write_attribute(dataset.id(), "unit", unit);
  h5::write_attribute(dataset.id(), "help", help);
  return dataset;
}

template <class T>
void append_one(hid_t file, const char* path, const T& value) {
  h5::Dataset dataset = h5::Dataset::open(file, path);
  if constexpr (std::is_same_v<T, std::string>)
    dataset.append_strings({&value, 1});
  else
    dataset.append<T>({&value, 1});
}

[[noreturn]] void refuse(const std::string& path, const std::string& text) {
  throw UserError(Place{path}, text);
}

constexpr const char* move_away = "move it away, and the run goes on with a new record from here";

void check_kind(const std::string& path) {
  switch (h5::probe(path)) {
    case h5::Probe::whole:
      break;
    case h5::Probe::absent:
      refuse(path, "there is no run file to continue");
    case h5::Probe::unreadable:
      refuse(path, "the run file cannot be read: check what it is and its permissions");
    case h5::Probe::not_hdf5:
      refuse(path, fmt::format("not an HDF5 file: {}", move_away));
    case h5::Probe::damaged:
      refuse(path, fmt::format("the run file is truncated or damaged: {}", move_away));
  }
  const h5::File file = h5::open_file(path, h5::Access::read);
  if (!h5::has_attribute(file.get(), "filetype") || !h5::has_attribute(file.get(), "version") ||
      h5::read_attribute<std::string>(file.get(), "filetype") != filetype)
    refuse(path, fmt::format("an HDF5 file, but not a run file of trireme: {}", move_away));
  const auto version = h5::read_attribute<std::vector<std::int64_t>>(file.get(), "version");
  if (version.size() != 2 || version[0] != version_major || version[1] > version_minor)
    refuse(path, fmt::format("run file version {}.{}; this trireme continues {}.{}: continue with "
                             "the version that wrote it, or {}",
                             version.empty() ? 0 : version[0], version.size() < 2 ? 0 : version[1],
                             version_major, version_minor, move_away));
}

}  // namespace

class RunFile::Impl {
 public:
  Impl(h5::File file, RunFileOptions options)
      : file_(std::move(file)), options_(std::move(options)) {
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

  void make_datasets();
  void make_checkpoints();
  void make_buckets();
  void open_datasets();
  void drop_after(std::int64_t step);
  void write_facts(const RunHeader& header);
  void write_deck(const NameValues& deck);
  void append_buckets(const std::vector<BucketRow>& buckets);
  void start_session(const RunHeader& header, std::int64_t first_step);

  void append(const StepRow& row) {
    rows_.push_back(row);
    flush_if_due();
  }
  void append_validation(std::int64_t step, double loss) {
    validation_steps_.push_back(step);
    validation_losses_.push_back(loss);
    flush_if_due();
  }
  void append(const CheckpointRow& row) {
    for (const CheckpointColumn& column : checkpoint_columns)
      std::visit(
          [&](auto member) {
            append_one(file_.get(), fmt::format("checkpoints/{}", column.name).c_str(),
                       row.*member);
          },
          column.member);
  }
  void append_samples(std::span<const Sample> samples) {
    samples_.insert(samples_.end(), samples.begin(), samples.end());
    flush_if_due();
  }
  void set_timing_fact(const std::string& name, double value, std::string_view unit) {
    const h5::Group group = h5::open_group(file_.get(), "timings");
    h5::write_attribute(group.get(), name, value);
    h5::write_attribute(group.get(), name + "_unit", std::string(unit));
  }
  void set_memory(const std::string& name, std::int64_t bytes) {
    h5::write_attribute(h5::open_group(file_.get(), "memory").get(), name, bytes);
  }
  void set_anchors(std::span<const double> seconds);
  void write_waiting();
  void flush();
  void close() {
    flush();
    columns_.clear();
    open_.clear();
    h5::close(std::move(file_));
  }
  [[nodiscard]] bool usable() const { return file_ && !failed_; }

 private:
  void flush_if_due() {
    const std::size_t waiting = rows_.size() + validation_steps_.size();
    if (waiting >= options_.flush_rows || samples_.size() >= most_waiting_samples ||
        options_.clock() - last_flush_ >= options_.flush_seconds)
      flush();
  }
  /// Keeps the first rows of all `datasets` of `group` in which `key` is at most `most`.
  void keep_rows(const std::string& group,
                 const std::string& key,
                 const std::vector<std::string>& datasets,
                 std::int64_t most);
  void keep_samples(std::int64_t step);
  enum class Open : std::size_t { validation_step, validation_loss, samples };
  h5::Dataset& at(Open which) { return open_[static_cast<std::size_t>(which)]; }

  h5::File file_;
  RunFileOptions options_;
  std::vector<h5::Dataset> columns_;  ///< as step_columns
  std::vector<h5::Dataset> open_;     ///< by Open
  std::vector<StepRow> rows_;
  std::vector<std::int64_t> validation_steps_;
  std::vector<double> validation_losses_;
  std::vector<Sample> samples_;
  std::int64_t first_step_ = 1;
  double last_flush_ = 0;
  bool failed_ = false;
};

void RunFile::Impl::make_datasets() {
  const auto whole = h5::type_of<std::int64_t>(), real = h5::type_of<double>();
  const auto text = h5::string_type();
  const h5::Group steps = h5::open_group(file_.get(), "steps");
  for (const StepColumn& column : step_columns)
    add_dataset(steps.get(), column.name, column.member.index() == 0 ? whole : real, chunk_rows,
                column.unit, column.help);

  const h5::Group validation = h5::open_group(file_.get(), "validation");
  add_dataset(validation.get(), "step", whole, chunk_few, "steps",
              "Steps done when it was measured.");
  add_dataset(validation.get(), "loss", real, chunk_few, "nat/token",
              "Mean over the validation batches.");

  make_checkpoints();
  make_buckets();

  const h5::Group sessions = h5::open_group(file_.get(), "sessions");
  add_dataset(sessions.get(), "date_and_time", text, chunk_few, "", "When the session began, UTC.");
  add_dataset(sessions.get(), "first_step", whole, chunk_few, "steps",
              "The first step of the session.");
  add_dataset(sessions.get(), "ranks", whole, chunk_few, "ranks", "How many took part.");
  add_dataset(sessions.get(), "machine", text, chunk_few, "", "Hosts, in rank order.");
  add_dataset(sessions.get(), "facts", text, chunk_few, "", "Versions and the like, one per line.");

  const h5::Group timings = h5::open_group(file_.get(), "timings");
  add_dataset(timings.get(), "samples", sample_type(), chunk_samples,
              "begin_s: s since the rank's anchor; duration_s: s",
              "Measured intervals; `name` is a row of names, `index` counts what that row says.");
  std::vector<std::string> dotted, index, help;
  for (const timing::NameInfo& row : timing::names) {
    dotted.emplace_back(row.dotted);
    index.emplace_back(row.index);
    help.emplace_back(row.help);
  }
  h5::Dataset names = add_dataset(timings.get(), "names", text, chunk_few, "", "Names by id.");
  names.append_strings(dotted);
  h5::write_attribute(names.id(), "index_of", index);
  h5::write_attribute(names.id(), "help_of", help);
  const h5::Group anchors = h5::open_group(file_.get(), "timings/anchors");
  add_dataset(anchors.get(), "first_step", whole, chunk_few, "steps", "From this step on …");
  add_dataset(anchors.get(), "rank", whole, chunk_few, "rank", "… samples of this rank …");
  add_dataset(anchors.get(), "calendar_s", real, chunk_few, "s since 1970 UTC", "… begin here.");
  h5::write_attribute(h5::open_group(file_.get(), "memory").get(), "unit", "byte");
}

void RunFile::Impl::make_checkpoints() {
  const h5::Group checkpoints = h5::open_group(file_.get(), "checkpoints");
  for (const CheckpointColumn& column : checkpoint_columns)
    add_dataset(checkpoints.get(), column.name,
                column.member.index() == 0 ? h5::type_of<std::int64_t>() : h5::type_of<double>(),
                chunk_few, column.unit, column.help);
}

void RunFile::Impl::make_buckets() {
  const h5::Group buckets = h5::open_group(file_.get(), "buckets");
  const auto whole = h5::type_of<std::int64_t>();
  const auto text = h5::string_type();
  add_dataset(buckets.get(), "first_step", whole, chunk_few, "steps", "From this step on …");
  add_dataset(buckets.get(), "bucket", whole, chunk_few, "bucket", "… this bucket holds:");
  for (const BucketColumn& column : bucket_columns)
    add_dataset(buckets.get(), column.name, column.member.index() == 0 ? whole : text, chunk_few,
                column.unit, column.help);
}

void RunFile::Impl::append_buckets(const std::vector<BucketRow>& buckets) {
  const h5::Group group = h5::open_group(file_.get(), "buckets");
  std::vector<std::int64_t> numbers(buckets.size());
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  h5::Dataset::open(group.get(), "first_step")
      .append<std::int64_t>(std::vector<std::int64_t>(buckets.size(), first_step_));
  h5::Dataset::open(group.get(), "bucket").append<std::int64_t>(numbers);
  for (const BucketColumn& column : bucket_columns) {
    h5::Dataset dataset = h5::Dataset::open(group.get(), column.name);
    const auto column_of = [&]<class T>(T BucketRow::*member) {
      std::vector<T> values;
      for (const BucketRow& bucket : buckets) values.push_back(bucket.*member);
      if constexpr (std::is_same_v<T, std::string>)
        dataset.append_strings(values);
      else
        dataset.append<T>(values);
    };
    std::visit(column_of, column.member);
  }
}

void RunFile::Impl::open_datasets() {
  for (const StepColumn& column : step_columns)
    columns_.push_back(h5::Dataset::open(file_.get(), std::string("steps/") + column.name));
  open_.push_back(h5::Dataset::open(file_.get(), "validation/step"));
  open_.push_back(h5::Dataset::open(file_.get(), "validation/loss"));
  open_.push_back(h5::Dataset::open(file_.get(), "timings/samples"));
}

void RunFile::Impl::keep_rows(const std::string& group,
                              const std::string& key,
                              const std::vector<std::string>& datasets,
                              std::int64_t most) {
  auto values = h5::Dataset::open(file_.get(), group + "/" + key).read_all<std::int64_t>();
  const auto end = std::ranges::find_if(values, [&](std::int64_t v) { return v > most; });
  std::int64_t rows = end - values.begin();
  std::vector<h5::Dataset> all;
  all.reserve(datasets.size());
  for (const std::string& name : datasets)
    all.push_back(h5::Dataset::open(file_.get(), group + "/" + name));
  for (const h5::Dataset& dataset : all) rows = std::min(rows, dataset.elements());
  for (h5::Dataset& dataset : all) dataset.resize(rows);
}

void RunFile::Impl::keep_samples(std::int64_t step) {
  h5::Dataset dataset = h5::Dataset::open(file_.get(), "timings/samples");
  const h5::Type type = sample_type();
  std::vector<Sample> all(static_cast<std::size_t>(dataset.elements()));
  dataset.read(0, dataset.elements(), type, all.data());
  const auto too_late = [&](const Sample& sample) { return sample.step > step; };
  const auto first = std::ranges::find_if(all, too_late);
  const auto kept_before = first - all.begin();
  all.erase(std::remove_if(first, all.end(), too_late), all.end());
  dataset.resize(static_cast<std::int64_t>(all.size()));
  const auto rewritten = static_cast<std::int64_t>(all.size()) - kept_before;
  dataset.write(kept_before, rewritten, type, all.data() + kept_before);
}

void RunFile::Impl::drop_after(std::int64_t step) {
  std::vector<std::string> names;
  for (const StepColumn& column : step_columns) names.emplace_back(column.name);
  keep_rows("steps", "step", names, step);
  keep_rows("validation", "step", {"step", "loss"}, step);
  if (h5::exists(file_.get(), "checkpoints")) {
    std::vector<std::string> columns;
    for (const CheckpointColumn& column : checkpoint_columns) columns.emplace_back(column.name);
    keep_rows("checkpoints", "step", columns, step);
  } else {  // a file of version 1.0
    make_checkpoints();
  }
  if (h5::exists(file_.get(), "buckets")) {
    std::vector<std::string> columns = {"first_step", "bucket"};
    for (const BucketColumn& column : bucket_columns) columns.emplace_back(column.name);
    keep_rows("buckets", "first_step", columns, step);
  } else {  // before 1.2
    make_buckets();
  }
  h5::write_attribute(file_.get(), "version",
                      std::vector<std::int64_t>{version_major, version_minor});
  keep_rows("timings/anchors", "first_step", {"first_step", "rank", "calendar_s"}, step);
  keep_samples(step);
}

void RunFile::Impl::write_facts(const RunHeader& header) {
  h5::write_attribute(file_.get(), "filetype", filetype);
  h5::write_attribute(file_.get(), "version",
                      std::vector<std::int64_t>{version_major, version_minor});
  h5::write_attribute(file_.get(), "date_and_time", date_and_time());
  h5::write_attribute(file_.get(), "machine", machine(header.hosts));
  for (const auto& [name, value] : header.facts) h5::write_attribute(file_.get(), name, value);
}

void RunFile::Impl::write_deck(const NameValues& deck) {
  const h5::Group group = h5::open_group(file_.get(), "deck");
  h5::delete_attributes(group.get());
  for (const auto& [name, value] : deck) h5::write_attribute(group.get(), name, value);
}

void RunFile::Impl::start_session(const RunHeader& header, std::int64_t first_step) {
  first_step_ = first_step;
  append_one(file_.get(), "sessions/date_and_time", date_and_time());
  append_one(file_.get(), "sessions/first_step", first_step);
  append_one(file_.get(), "sessions/ranks", static_cast<std::int64_t>(header.hosts.size()));
  append_one(file_.get(), "sessions/machine", machine(header.hosts));
  append_one(file_.get(), "sessions/facts", lines_of(header.facts));
  append_buckets(header.buckets);
}

void RunFile::Impl::set_anchors(std::span<const double> seconds) {
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    append_one(file_.get(), "timings/anchors/first_step", first_step_);
    append_one(file_.get(), "timings/anchors/rank", static_cast<std::int64_t>(rank));
    append_one(file_.get(), "timings/anchors/calendar_s", seconds[rank]);
  }
}

void RunFile::Impl::write_waiting() {
  for (std::size_t i = 0; i < columns_.size() && !rows_.empty(); ++i)
    std::visit(
        [&](auto member) {
          std::vector<std::decay_t<decltype(rows_.front().*member)>> values;
          values.reserve(rows_.size());
          for (const StepRow& row : rows_) values.push_back(row.*member);
          columns_[i].append<typename decltype(values)::value_type>(values);
        },
        step_columns[i].member);
  rows_.clear();
  at(Open::validation_step).append<std::int64_t>(validation_steps_);
  at(Open::validation_loss).append<double>(validation_losses_);
  validation_steps_.clear();
  validation_losses_.clear();
  at(Open::samples)
      .append(static_cast<std::int64_t>(samples_.size()), sample_type(), samples_.data());
  samples_.clear();
}

void RunFile::Impl::flush() {
  try {
    write_waiting();
    h5::flush(file_);
  } catch (...) {
    failed_ = true;
    throw;
  }
  last_flush_ = options_.clock();
}

RunFile::RunFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunFile::RunFile(RunFile&&) noexcept = default;
RunFile& RunFile::operator=(RunFile&&) noexcept = default;

RunFile::~RunFile() {
  if (!impl_ || !impl_->usable())
    return;
  try {
    impl_->flush();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "warning: the last rows of the run file are lost: %s\n", problem.what());
  }
}

RunFile RunFile::create(const std::string& path, const RunHeader& header, RunFileOptions options) {
  if (h5::probe(path) != h5::Probe::absent)
    refuse(path, "a run file is here already: nothing was changed; choose another run.directory");
  auto impl = std::make_unique<Impl>(h5::create_file(path), std::move(options));
  try {
    impl->make_datasets();
    impl->open_datasets();
    impl->write_facts(header);
    impl->write_deck(header.deck);
    impl->start_session(header, 1);
    impl->flush();
  } catch (...) {
    impl.reset();
    std::remove(path.c_str());  // ours, and of no use to anyone
    throw;
  }
  return RunFile(std::move(impl));
}

std::optional<std::int64_t> RunFile::last_step(const std::string& path) {
  std::error_code ignored;
  switch (h5::probe(path)) {
    case h5::Probe::whole:
      break;
    case h5::Probe::damaged:
      return 0;
    case h5::Probe::not_hdf5:
      if (std::filesystem::is_empty(path, ignored))
        return 0;
      return std::nullopt;
    case h5::Probe::absent:
    case h5::Probe::unreadable:
      return std::nullopt;
  }
  const h5::File file = h5::open_file(path, h5::Access::read);
  if (!h5::has_attribute(file.get(), "filetype"))
    return h5::attribute_names(file.get()).empty() ? std::optional<std::int64_t>(0) : std::nullopt;
  if (h5::read_attribute<std::string>(file.get(), "filetype") != filetype)
    return std::nullopt;
  if (!h5::exists(file.get(), "steps/step"))
    return 0;
  const auto steps = h5::Dataset::open(file.get(), "steps/step").read_all<std::int64_t>();
  return steps.empty() ? 0 : steps.back();
}

RunFile RunFile::resume(const std::string& path,
                        const RunHeader& header,
                        std::int64_t step,
                        RunFileOptions options) {
  check_kind(path);
  auto impl =
      std::make_unique<Impl>(h5::open_file(path, h5::Access::read_write), std::move(options));
  try {
    impl->open_datasets();
  } catch (const StorageError& problem) {
    refuse(path, fmt::format("the run file is damaged: {}: {}", problem.what(), move_away));
  }
  impl->drop_after(step);
  impl->write_deck(header.deck);
  impl->start_session(header, step + 1);
  impl->flush();
  return RunFile(std::move(impl));
}

void RunFile::append(const StepRow& row) {
  impl_->append(row);
}
void RunFile::append_validation(std::int64_t step, double loss) {
  impl_->append_validation(step, loss);
}
void RunFile::append_checkpoint(const CheckpointRow& row) {
  impl_->append(row);
}
void RunFile::append_samples(std::span<const timing::Sample> samples) {
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
void RunFile::flush() {
  impl_->flush();
}
void RunFile::close() {
  impl_->close();
}

}  // namespace trireme::record
