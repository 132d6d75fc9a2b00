// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_file.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "files/descriptor.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run/columns.hpp"
#include "record/run/log_line.hpp"
#include "record/run/rows.hpp"

namespace trireme::record {
namespace {

using Sample = device::TimeSample;

/// Samples per call of HDF5, which is also the chunk size: 128 KiB.
constexpr std::size_t samples_at_once = std::size_t{1} << 16U;
constexpr std::int64_t chunk_samples = 4096;

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

void write_value(hid_t object, const std::string& name, const Json& value) {
  if (value.is_number_integer())
    h5::write_attribute(object, name, value.get<std::int64_t>());
  else if (value.is_number())
    h5::write_attribute(object, name, value.get<double>());
  else
    h5::write_attribute(object, name, value.is_string() ? value.get<std::string>() : value.dump());
}

/// The members of an object as lines "name: value".
std::string lines_of(const Json& object) {
  std::string text;
  for (const auto& [name, value] : object.items()) {
    const std::string word = value.is_string() ? value.template get<std::string>()
                             : value.is_number_float()
                                 ? fmt::format("{}", value.template get<double>())
                                 : value.dump();
    text += fmt::format("{}: {}\n", name, word);
  }
  return text;
}

/// Builds the file from the lines of a log, in order.
class Builder {
 public:
  Builder(const h5::File& file, const Rewinds& rewinds)
      : file_(file), rewinds_(rewinds), sessions_(file), tables_(file) {
    make_names();
    h5::write_attribute(h5::open_group(file_.get(), "memory").get(), "unit", "byte");
    h5::write_attribute(file_.get(), "filetype", "trireme-run");
    h5::write_attribute(file_.get(), "version", std::vector<std::int64_t>{1, 0});
    h5::write_attribute(file_.get(), "schema",
                        "trireme-run 1.0, described in docs/reference/run-file.md");
  }

  void take(std::int64_t number, std::string_view line) {
    const std::string_view kind = kind_of(line);
    if (kind.empty())
      return;
    const auto take_row = [&]<class Row>(Table<Row>& table) {
      if (kind != Row::table.kind)
        return;
      if (const auto row = row_of<Row>(parse_line(line)); keeps(rewinds_, number, row))
        table.add(row);
    };
    tables_.each(take_row);
    if (kind == EvaluationRow::table.kind)
      take_evaluation(number, parse_line(line));
    else if (kind == SessionRow::table.kind)
      take_session(parse_line(line));
    else if (kind == tokenizer_kind)
      tokenizer_ = member<std::string>(parse_line(line), "text");
    else if (kind == timing_fact_kind)
      take_timing_fact(parse_line(line));
    else if (kind == memory_kind)
      take_memory(parse_line(line));
  }

  /// Call after the last line.
  void finish(const Spans& spans) {
    tables_.each([](auto& table) { table.write(); });
    sessions_.write();
    for (auto& [set, table] : sets_) table.write();
    const h5::Group deck = h5::open_group(file_.get(), "deck");
    for (const auto& [name, value] : deck_.items()) write_value(deck.get(), name, value);
    if (!tokenizer_.empty())
      add_dataset(file_.get(), "tokenizer", h5::type_of<std::string>(), 1, "",
                  "The tokenizer of the run's tokens, in trireme's text form.")
          .append<std::string>({&tokenizer_, 1});
    write_spans(spans);
  }

 private:
  template <class... Row>
  struct Tables : Table<Row>... {
    explicit Tables(const h5::File& file) : Table<Row>(file)... {}
    void each(auto&& action) { (action(static_cast<Table<Row>&>(*this)), ...); }
  };

  void make_names() {
    std::vector<std::string> dotted, index, help;
    for (const device::SpanInfo& row : device::span_names) {
      dotted.emplace_back(row.dotted);
      index.emplace_back(row.index);
      help.emplace_back(row.help);
    }
    h5::Dataset names =
        add_dataset(h5::open_group(file_.get(), "timings").get(), "names",
                    h5::type_of<std::string>(), chunk_few, "", "Names of spans, by id.");
    names.append<std::string>(dotted);
    h5::write_attribute(names.id(), "index_of", index);
    h5::write_attribute(names.id(), "help_of", help);
  }

  void take_evaluation(std::int64_t number, const Json& object) {
    const std::string set = member<std::string>(object, "set");
    if (set.empty())
      return;
    const h5::Group sets = h5::open_group(file_.get(), "evaluation");
    const auto found = sets_.try_emplace(set, file_, "evaluation/" + set).first;
    h5::write_attribute(sets.get(), set, member<std::string>(object, "of"));
    if (const auto row = row_of<EvaluationRow>(object); keeps(rewinds_, number, row))
      found->second.add(row);
  }

  void take_session(const Json& object) {
    const auto part = [&](const char* name) {
      const auto found = object.find(name);
      return found != object.end() && found->is_object() ? *found : Json::object();
    };
    auto row = row_of<SessionRow>(object);
    const Json facts = part("facts");
    deck_ = part("deck");
    row.facts = lines_of(facts);
    row.deck = lines_of(deck_);
    if (is_first_) {
      h5::write_attribute(file_.get(), "date_and_time", row.date_and_time);
      h5::write_attribute(file_.get(), "machine", row.machine);
      for (const auto& [name, value] : facts.items()) write_value(file_.get(), name, value);
    }
    is_first_ = false;
    sessions_.add(row);
  }

  void take_timing_fact(const Json& object) {
    const std::string name = member<std::string>(object, "name");
    if (name.empty())
      return;
    const h5::Group group = h5::open_group(file_.get(), "timings");
    double value = not_known;
    read_member(object, "value", value);
    h5::write_attribute(group.get(), name, value);
    h5::write_attribute(group.get(), name + "_unit", member<std::string>(object, "unit"));
  }

  void take_memory(const Json& object) {
    if (const std::string name = member<std::string>(object, "name"); !name.empty())
      h5::write_attribute(h5::open_group(file_.get(), "memory").get(), name,
                          member<std::int64_t>(object, "bytes"));
  }

  void write_spans(const Spans& spans) {
    const h5::Type type = sample_type();
    h5::Dataset samples =
        add_dataset(h5::open_group(file_.get(), "timings").get(), "samples", type, chunk_samples,
                    "begin_s: s after the rank's anchor; duration_s: s",
                    "Measured intervals; `name` is a row of /timings/names, and `index` counts "
                    "what that table's attribute index_of has there.");
    std::vector<Sample> some;
    for (auto at = spans.begin(); at != spans.end();) {
      const auto count = std::min(std::ptrdiff_t{samples_at_once}, spans.end() - at);
      some.assign(at, at + count);
      samples.append(count, type, some.data());
      at += count;
    }
  }

  const h5::File& file_;
  const Rewinds& rewinds_;
  Table<SessionRow> sessions_;
  Tables<StepRow,
         ValidationRow,
         CheckpointRow,
         SkippedRow,
         NoiseScaleRow,
         NormRow,
         RankSpanRow,
         RankEnergyRow,
         BucketRow,
         AnchorRow>
      tables_;
  std::map<std::string, Table<EvaluationRow>> sets_;
  Json deck_ = Json::object();
  std::string tokenizer_;
  bool is_first_ = true;
};

}  // namespace

void write_run_file(const std::string& path,
                    const std::string& log,
                    const Rewinds& rewinds,
                    const Spans& spans) {
  h5::File file = h5::create_file(path);
  {
    Builder builder(file, rewinds);
    for_each_line(log,
                  [&](std::int64_t number, std::string_view line) { builder.take(number, line); });
    builder.finish(spans);
  }
  h5::close(std::move(file));
}

Spans read_spans(const std::string& path, const Rewinds& rewinds, std::int64_t line) {
  const h5::File file = h5::open_file(path);
  const h5::Dataset dataset = h5::Dataset::open(file.get(), "timings/samples");
  const h5::Type type = sample_type();
  Spans spans;
  std::vector<Sample> some;
  const std::int64_t all = dataset.stored_elements();
  for (std::int64_t at = 0; at < all; at += std::ssize(some)) {
    some.resize(
        static_cast<std::size_t>(std::min(all - at, static_cast<std::int64_t>(samples_at_once))));
    dataset.read(at, std::ssize(some), type, some.data());
    for (const Sample& sample : some)
      if (rewinds.keep(line, sample.step))
        spans.push_back(sample);
  }
  return spans;
}

std::pair<std::int64_t, std::string> size_and_sum(const std::string& path) {
  const files::InputFile file(path);
  std::string block(std::size_t{1} << 20U, '\0');
  std::uint32_t sum = 0;
  std::int64_t size = 0;
  for (bool more = true; more;) {
    const std::size_t got = file.read_some(size, std::as_writable_bytes(std::span(block)));
    sum = crc32_of(std::string_view(block).substr(0, got), sum);
    size += static_cast<std::int64_t>(got);
    more = got == block.size();
  }
  return {size, fmt::format("{:08x}", sum)};
}

}  // namespace trireme::record
