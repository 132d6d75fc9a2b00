// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_schema.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "h5/attribute.hpp"
#include "h5/space.hpp"
#include "record/run/row_hashes.hpp"
#include "record/run/run_identity.hpp"

namespace trireme::record {
namespace {

using device::TimeSample;

/// Elements that a dataset grows by on disk: 8 KiB to 128 KiB per column.
constexpr std::int64_t chunk_rows = 1024, chunk_samples = 4096, chunk_few = 64;

/// Keeps the first rows of all `datasets` of `group` in which `key` is at most `most`. Returns a
/// sentence when one of them ends before that.
std::string keep_rows(const h5::File& file,
                      const std::string& group,
                      const std::string& key,
                      const std::vector<std::string>& datasets,
                      std::int64_t most) {
  auto values = h5::Dataset::open(file.get(), group + "/" + key).read_all<std::int64_t>();
  const auto end = std::ranges::find_if(values, [&](std::int64_t v) { return v > most; });
  const std::int64_t wanted = end - values.begin();
  std::int64_t rows = wanted, most_rows = 0;
  std::string shortest;
  std::vector<h5::Dataset> all;
  all.reserve(datasets.size());
  for (const std::string& name : datasets) {
    all.push_back(h5::Dataset::open(file.get(), fmt::format("{}/{}", group, name)));
    // A length that the file cannot hold is damage; HDF5 would look for each of its chunks to drop.
    const std::int64_t stored = all.back().stored_elements();
    most_rows = std::max(most_rows, stored);
    if (stored < rows) {
      rows = stored;
      shortest = name;
    }
  }
  for (h5::Dataset& dataset : all) dataset.resize(rows);
  if (end == values.end() && most_rows > wanted)
    return fmt::format("column {} of /{} ends before the others: {} rows are dropped", key, group,
                       most_rows - rows);
  if (rows == wanted)
    return "";
  return fmt::format("column {} of /{} ends before the others: the rows of {} {} to {} are dropped",
                     shortest, group, key, values[static_cast<std::size_t>(rows)],
                     values[static_cast<std::size_t>(wanted) - 1]);
}

void keep_samples(const h5::File& file, std::int64_t step) {
  h5::Dataset dataset = h5::Dataset::open(file.get(), "timings/samples");
  const h5::Type type = sample_type();
  std::vector<TimeSample> all(static_cast<std::size_t>(dataset.elements()));
  dataset.read(0, dataset.elements(), type, all.data());
  const auto too_late = [&](const TimeSample& sample) { return sample.step > step; };
  const auto first = std::ranges::find_if(all, too_late);
  const auto kept_before = first - all.begin();
  all.erase(std::remove_if(first, all.end(), too_late), all.end());
  dataset.resize(static_cast<std::int64_t>(all.size()));
  const auto rewritten = static_cast<std::int64_t>(all.size()) - kept_before;
  dataset.write(kept_before, rewritten, type, all.data() + kept_before);
}

}  // namespace

h5::Type sample_type() {
  const auto u32 = h5::type_of<std::uint32_t>(), u16 = h5::type_of<std::uint16_t>();
  const auto f64 = h5::type_of<double>();
  return h5::compound_type(sizeof(TimeSample),
                           {{"step", offsetof(TimeSample, step), u32},
                            {"micro", offsetof(TimeSample, micro), u16},
                            {"name", offsetof(TimeSample, name), u16},
                            {"index", offsetof(TimeSample, index), u32},
                            {"rank", offsetof(TimeSample, rank), u32},
                            {"begin_s", offsetof(TimeSample, begin_s), f64},
                            {"duration_s", offsetof(TimeSample, duration_s), f64}});
}

void expect_names(const h5::File& file) {
  const auto there = h5::Dataset::open(file.get(), "timings/names").read_strings();
  if (!std::ranges::equal(there, device::span_names, {}, {}, &device::SpanInfo::dotted))
    throw UserError(fmt::format(
        "/timings/names of the run file does not hold the span names of this trireme, so its "
        "samples would get other names: {}",
        move_away));
}

namespace {

void make_names(const h5::File& file) {
  std::vector<std::string> dotted, index, help;
  for (const device::SpanInfo& row : device::span_names) {
    dotted.emplace_back(row.dotted);
    index.emplace_back(row.index);
    help.emplace_back(row.help);
  }
  h5::Dataset names = add_dataset(h5::open_group(file.get(), "timings").get(), "names",
                                  h5::string_type(), chunk_few, "", "Names of spans, by id.");
  names.append_strings(dotted);
  h5::write_attribute(names.id(), "index_of", index);
  h5::write_attribute(names.id(), "help_of", help);
}

}  // namespace

void make_datasets(const h5::File& file) {
  const auto whole = h5::type_of<std::int64_t>(), real = h5::type_of<double>();
  const auto text = h5::string_type();
  const auto make = [&](const char* group, const auto& columns, std::int64_t chunk) {
    add_columns(h5::open_group(file.get(), group).get(), columns, chunk);
  };
  make("steps", step_columns, chunk_rows);
  make("validation", validation_columns, chunk_few);
  make("checkpoints", checkpoint_columns, chunk_few);
  make("skipped", skipped_columns, chunk_few);
  make("noise_scale", noise_scale_columns, chunk_few);
  make("timings/ranks", rank_span_columns, chunk_rows);
  make("buckets", bucket_columns, chunk_few);
  const h5::Group buckets = h5::open_group(file.get(), "buckets");
  add_dataset(buckets.get(), "first_step", whole, chunk_few, "steps",
              "First step with these buckets; they are in use up to the next such step.");
  add_dataset(buckets.get(), "bucket", whole, chunk_few, "bucket", "Number of the bucket, from 0.");

  const h5::Group sessions = h5::open_group(file.get(), "sessions");
  add_dataset(sessions.get(), "date_and_time", text, chunk_few, "", "When the session began, UTC.");
  add_dataset(sessions.get(), "first_step", whole, chunk_few, "steps",
              "The first step of the session.");
  add_dataset(sessions.get(), "ranks", whole, chunk_few, "ranks",
              "Number of ranks of the session.");
  add_dataset(sessions.get(), "machine", text, chunk_few, "", "Hosts of the ranks, in rank order.");
  add_dataset(sessions.get(), "facts", text, chunk_few, "",
              "Versions and settings of the session, one per line.");
  add_dataset(sessions.get(), "deck", text, chunk_few, "",
              "The resolved deck that the session's steps were made with.");

  const h5::Group timings = h5::open_group(file.get(), "timings");
  add_dataset(
      timings.get(), "samples", sample_type(), chunk_samples,
      "begin_s: s since the rank's anchor; duration_s: s",
      "Measured intervals; `name` is a row of /timings/names, and `index` counts what that table's "
      "attribute index_of has there.");
  make_names(file);
  const h5::Group anchors = h5::open_group(file.get(), "timings/anchors");
  add_dataset(anchors.get(), "first_step", whole, chunk_few, "steps",
              "First step of a session; its anchors hold up to the next such step.");
  add_dataset(anchors.get(), "rank", whole, chunk_few, "rank",
              "Rank whose clock the anchor belongs to.");
  add_dataset(anchors.get(), "calendar_s", real, chunk_few, "s since 1970 UTC",
              "Calendar time at which begin_s of the rank's samples is 0.");
  h5::write_attribute(h5::open_group(file.get(), "memory").get(), "unit", "byte");
  make_blocks(file);
}

namespace {

/// The groups of /evaluation.
std::vector<std::string> evaluation_groups(const h5::File& file) {
  std::vector<std::string> groups;
  if (h5::exists(file.get(), "evaluation"))
    for (const std::string& set :
         h5::attribute_names(h5::open_group(file.get(), "evaluation").get()))
      groups.push_back("evaluation/" + set);
  return groups;
}

}  // namespace

void append_evaluation(const h5::File& file,
                       const std::string& set,
                       const std::string& of,
                       const EvaluationRow& row) {
  const h5::Group sets = h5::open_group(file.get(), "evaluation");
  const bool is_new = !h5::exists(sets.get(), set);
  const h5::Group group = h5::open_group(sets.get(), set);
  if (is_new)
    add_columns(group.get(), evaluation_columns, chunk_few);
  h5::write_attribute(sets.get(), set, of);
  append_rows(group.get(), evaluation_columns, std::span(&row, 1));
}

void write_tokenizer(const h5::File& file, const std::string& serialized) {
  if (serialized.empty() || h5::exists(file.get(), "tokenizer"))
    return;
  add_dataset(file.get(), "tokenizer", h5::string_type(), 1, "",
              "The tokenizer of the run's tokens, in trireme's text form.")
      .append_strings({&serialized, 1});
}

std::string lines_of(const NameValues& values) {
  std::string text;
  for (const auto& [name, value] : values) text += fmt::format("{}: {}\n", name, value);
  return text;
}

std::vector<std::string> drop_after(const h5::File& file, std::int64_t step) {
  std::vector<std::string> notes = check_rows(file);
  const auto keep = [&](const std::string& group, const char* key,
                        const std::vector<std::string>& datasets) {
    if (std::string text = keep_rows(file, group, key, datasets, step); !text.empty())
      notes.push_back(std::move(text));
  };
  const auto names = [](const auto& columns, std::vector<std::string> all = {}) {
    for (const auto& column : columns) all.emplace_back(column.name);
    return all;
  };
  keep("steps", "step", names(step_columns));
  keep("validation", "step", names(validation_columns));
  for (const std::string& group : evaluation_groups(file))
    keep(group, "step", names(evaluation_columns));
  keep("checkpoints", "step", names(checkpoint_columns));
  keep("timings/ranks", "last_step", names(rank_span_columns));
  keep("skipped", "step", names(skipped_columns));
  keep("noise_scale", "step", names(noise_scale_columns));
  keep("buckets", "first_step", names(bucket_columns, {"first_step", "bucket"}));
  keep("timings/anchors", "first_step", {"first_step", "rank", "calendar_s"});
  keep_samples(file, step);
  hash_all_rows(file);
  return notes;
}

namespace {

template <class Columns>
void read_columns(const h5::File& file, const std::string& group, const Columns& columns) {
  for (const auto& column : columns) {
    const auto read = [&]<class Row, class T>(T Row::*) {
      const h5::Dataset dataset = h5::Dataset::open(file.get(), group + "/" + column.name);
      if constexpr (std::is_same_v<T, std::string>)
        static_cast<void>(dataset.read_strings());
      else
        static_cast<void>(dataset.template read_all<T>());
    };
    std::visit(read, column.member);
  }
}

}  // namespace

void read_everything(const h5::File& file) {
  const auto numbers = [&](const char* path) {
    static_cast<void>(h5::Dataset::open(file.get(), path).read_all<double>());
  };
  read_columns(file, "steps", step_columns);
  read_columns(file, "validation", validation_columns);
  for (const std::string& group : evaluation_groups(file))
    read_columns(file, group, evaluation_columns);
  for (const char* path :
       {"sessions/first_step", "sessions/ranks", "timings/anchors/first_step",
        "timings/anchors/rank", "timings/anchors/calendar_s", "buckets/first_step",
        "buckets/bucket", "blocks/table", "blocks/begin", "blocks/count", "blocks/hash"})
    numbers(path);
  for (const char* path :
       {"sessions/date_and_time", "sessions/machine", "sessions/facts", "sessions/deck"})
    static_cast<void>(h5::Dataset::open(file.get(), path).read_strings());
  read_columns(file, "checkpoints", checkpoint_columns);
  read_columns(file, "timings/ranks", rank_span_columns);
  read_columns(file, "skipped", skipped_columns);
  read_columns(file, "noise_scale", noise_scale_columns);
  read_columns(file, "buckets", bucket_columns);
  const h5::Dataset samples = h5::Dataset::open(file.get(), "timings/samples");
  std::vector<TimeSample> all(static_cast<std::size_t>(samples.stored_elements()));
  samples.read(0, std::ssize(all), sample_type(), all.data());
  for (const char* path : {"deck", "memory"}) {
    const h5::Group group = h5::open_group(file.get(), path);
    static_cast<void>(h5::attribute_names(group.get()));
  }
}

}  // namespace trireme::record
