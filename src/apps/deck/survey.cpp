// SPDX-License-Identifier: Apache-2.0
#include "deck/survey.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/text.hpp"

#include "deck/value_range.hpp"

namespace trireme::deck {
namespace {

class Surveyor {
 public:
  Surveyor(std::string prefix, std::vector<Entry>& entries)
      : prefix_(std::move(prefix)), entries_(entries) {}

  template <class T>
  void operator()(const char* name, const T& value, const Key<T>& key) {
    entries_.push_back({prefix_ + name,
                        type_text(value),
                        key.unit,
                        range_text(key),
                        key.help,
                        key.required,
                        key.change,
                        yaml_text(value),
                        record_text(value),
                        {}});
  }
  template <class S>
  void list(const char* name, std::vector<S>& items, const ListKey& key) {
    Entry entry;
    entry.path = prefix_ + name;
    entry.change = key.change;
    entry.type = "list of maps";
    entry.help = key.help;
    Surveyor inner("", entry.items);
    S usual;
    describe(inner, usual);
    std::vector<std::string> values;
    for (S& item : items) {
      LineWriter line;
      describe(line, item);
      values.push_back(line.map());
    }
    entry.text = fmt::format("[{}]", fmt::join(values, ", "));
    entry.record_text = yaml_text(values);
    entries_.push_back(std::move(entry));
  }
  template <class S>
  void section(const char* name, S& config) {
    Surveyor inner(prefix_ + name + ".", entries_);
    describe(inner, config);
  }

 private:
  std::string prefix_;
  std::vector<Entry>& entries_;
};

std::vector<std::string> sections_of(const std::string& path) {
  std::vector<std::string> sections;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
    sections.push_back(path.substr(0, dot));
  return sections;
}

/// A file name on one line, for a comment.
std::string in_one_line(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

std::string origin(const KeyPlaces& places, const std::string& path) {
  if (!places.given(path))
    return "default";
  const Place place = places.of(path);
  return fmt::format("{}:{}:{}", in_one_line(place.file), place.line, place.column);
}

/// `text` wrapped to `width` columns, each line indented by `indent`.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string result;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::size_t length = end - begin;
    if (column > 0 && column + 1 + length > width) {
      result += '\n';
      column = 0;
    }
    result += column == 0 ? std::string(indent, ' ') : " ";
    column = (column == 0 ? indent : column + 1) + length;
    result += text.substr(begin, length);
    begin = end + 1;
  }
  return result + '\n';
}

/// The values that the key takes, and below them its help, which ends with the default. The keys of
/// a list's items follow.
std::string explained(const Entry& entry, const std::string& path) {
  std::string takes = entry.type;
  if (!entry.unit.empty())
    takes += ", " + entry.unit;
  if (!entry.range.empty())
    takes += ", in " + entry.range;
  std::string help = entry.help;
  if (entry.change != Change::free)
    help += entry.change == Change::asked ? " Can change on resume with run.allow_changes."
                                          : " Cannot change on resume.";
  help += entry.required ? " Required." : fmt::format(" Default: {}.", entry.text);
  constexpr std::size_t indent = 35;
  std::string text = fmt::format("{:<{}}{}{}", path + " ", indent,
                                 wrapped(takes, indent, 118).substr(indent), wrapped(help, 4, 100));
  for (const Entry& item : entry.items) text += explained(item, path + "[]." + item.path);
  return text;
}

/// The explanations of the keys below `wanted`, which is a key or a section, also of a list's items.
std::string help_of(const Entry& entry, const std::string& path, const std::string& wanted) {
  if (wanted.empty() || path == wanted || path.starts_with(wanted + "."))
    return explained(entry, path);
  std::string text;
  for (const Entry& item : entry.items) text += help_of(item, path + "[]." + item.path, wanted);
  return text;
}

[[noreturn]] void refuse_unknown(const std::string& name, const std::vector<Entry>& entries) {
  std::set<std::string> sections;
  std::vector<std::string> names;
  std::string elsewhere;
  for (const Entry& entry : entries) {
    names.push_back(entry.path);
    for (const std::string& section : sections_of(entry.path)) sections.insert(section);
    if (leaf(entry.path) == name)
      elsewhere += (elsewhere.empty() ? "" : " or ") + ("'" + entry.path + "'");
  }
  names.insert(names.end(), sections.begin(), sections.end());
  std::string hint = "`trireme help deck` lists all keys";
  if (const auto near = nearest(name, names))
    hint = fmt::format("did you mean '{}'?", *near);
  else if (!elsewhere.empty())
    hint = fmt::format("did you mean {}?", elsewhere);
  throw UserError(fmt::format("a deck has no key or section '{}': {}", name, hint));
}

}  // namespace

std::vector<Entry> survey(const JobConfig& config) {
  std::vector<Entry> entries;
  Surveyor surveyor("", entries);
  JobConfig copy = config;
  describe(surveyor, copy);
  return entries;
}

std::string echo(const Deck& deck) {
  std::string text = fmt::format(
      "# Every key of the deck {} as trireme understood it, and where each value comes from.\n",
      in_one_line(deck.places.file()));
  std::set<std::string> open;
  for (const Entry& entry : survey(deck.config)) {
    std::size_t depth = 0;
    for (const std::string& section : sections_of(entry.path)) {
      if (open.insert(section).second)
        text += fmt::format("{:{}}{}:\n", "", 2 * depth, leaf(section));
      ++depth;
    }
    const std::string line =
        fmt::format("{:{}}{}: {}", "", 2 * depth, leaf(entry.path), entry.text);
    text += fmt::format("{:<40}  # {}\n", line, origin(deck.places, entry.path));
  }
  return text;
}

std::string help(const std::string& section_or_key) {
  const std::vector<Entry> entries = survey(JobConfig{});
  std::string text;
  std::string section;
  for (const Entry& entry : entries) {
    const std::string found = help_of(entry, entry.path, section_or_key);
    if (found.empty())
      continue;
    const std::string head = sections_of(entry.path).front();
    if (!text.empty() && head != section)
      text += '\n';
    section = head;
    text += found;
  }
  if (text.empty())
    refuse_unknown(section_or_key, entries);
  return text;
}

session::Job job_of(const Deck& deck) {
  const model::GptShape shape = deck.shape();
  const session::Sections& sections = deck.config;
  session::Job job{sections};
  job.shape = shape;
  job.resolved_deck = echo(deck);
  job.tokenizer = deck.tokenizer_of_data();
  const std::map<std::string, std::string> resolved = resolved_model(shape);
  for (const Entry& entry : survey(deck.config)) {
    const auto known = resolved.find(entry.path);  // values from a preset or the tokenizer
    job.deck.emplace_back(entry.path, known == resolved.end() ? entry.record_text : known->second);
    // What follows from other keys is no mistake of its own; loading compares the whole model.
    const bool follows = known != resolved.end() && !deck.places.given(entry.path);
    job.rules.push_back(follows && entry.change == Change::never ? Change::free : entry.change);
  }
  return job;
}

std::map<std::string, std::string> resolved_model(const model::GptShape& shape) {
  std::map<std::string, std::string> known;
  for (const auto& [key, value] : model::key_values(shape)) known.emplace("model." + key, value);
  return known;
}

std::string model_section(const model::GptShape& shape) {
  auto usual =
      resolved_model({.layers = shape.layers, .heads = shape.heads, .channels = shape.channels});
  usual.erase("model.mlp_channels");  // its default depends on the activation
  constexpr std::string_view nested = "rotary_scaling.";
  std::string text, scaling;
  const auto add = [](std::string& to, std::string_view key, const std::string& value) {
    to += fmt::format("{}{}: {}", to.empty() ? "" : ", ", key, value);
  };
  for (const auto& [key, value] : model::key_values(shape)) {
    const bool size = key == "layers" || key == "heads" || key == "channels";
    const auto known = usual.find("model." + key);
    if (!size && known != usual.end() && known->second == value)
      continue;
    if (key.starts_with(nested))
      add(scaling, std::string_view(key).substr(nested.size()), value);
    else
      add(text, key, value);
  }
  if (!scaling.empty())
    add(text, "rotary_scaling", "{" + scaling + "}");
  return "model: {" + text + "}";
}

}  // namespace trireme::deck
