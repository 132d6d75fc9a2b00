// SPDX-License-Identifier: Apache-2.0
#include "plan/machine_file.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/key.hpp"

#include "deck/deck.hpp"
#include "deck/reader.hpp"
#include "deck/value.hpp"
#include "deck/yaml.hpp"

namespace trireme::plan {
namespace {

/// The describe() visitor that writes an item in one line, and notes whether that is possible.
class LineWriter {
 public:
  template <class T>
  void operator()(const char* name, const T& value, const Key<T>& /*key*/) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", name, deck::yaml_text(value));
  }
  template <class S>
  void list(const char* /*name*/, std::vector<S>& /*items*/, const ListKey& /*key*/) {
    has_lists = true;
  }

  std::string text;
  bool has_lists = false;
};

/// The describe() visitor that writes a line per key. Items that hold lists begin with a key that
/// is none.
class Writer {
 public:
  Writer(std::string indent, std::string first_indent, std::string& text)
      : indent_(std::move(indent)), next_(std::move(first_indent)), text_(text) {}

  template <class T>
  void operator()(const char* name, const T& value, const Key<T>& /*key*/) {
    text_ += fmt::format("{}{}: {}\n", std::exchange(next_, indent_), name, deck::yaml_text(value));
  }
  template <class S>
  void list(const char* name, std::vector<S>& items, const ListKey& /*key*/) {
    text_ += fmt::format("{}{}:{}\n", indent_, name, items.empty() ? " []" : "");
    for (S& item : items) {
      LineWriter line;
      describe(line, item);
      if (line.has_lists) {
        Writer inner(indent_ + "    ", indent_ + "  - ", text_);
        describe(inner, item);
      } else {
        text_ += fmt::format("{}  - {{{}}}\n", indent_, line.text);
      }
    }
  }

 private:
  std::string indent_, next_;
  std::string& text_;
};

/// Rules that tie several keys together.
void check_points(const Machine& machine,
                  const deck::KeyPlaces& places,
                  std::vector<Diagnostic>& findings) {
  for (std::size_t l = 0; l < machine.links.size(); ++l)
    for (std::size_t c = 0; c < machine.links[l].collectives.size(); ++c) {
      const auto& points = machine.links[l].collectives[c].points;
      if (std::ranges::is_sorted(points, std::ranges::less_equal{}, &Point::bytes))
        continue;
      const std::string path = fmt::format("links[{}].collectives[{}].points", l, c);
      if (places.readable(path))
        findings.push_back({places.of(path), path, "the sizes do not ascend"});
    }
}

}  // namespace

Machine parse_machine(const std::string& bytes, const std::string& path) {
  std::vector<Diagnostic> findings;
  deck::KeyPlaces places(path);
  Machine machine;
  const deck::Node root = deck::parse_yaml(bytes, {.file = path}, findings);
  if (root.kind == deck::Node::Kind::null)
    throw UserError(Place{path, 0, 0}, "the machine file is empty");
  if (root.kind != deck::Node::Kind::map)
    places.spoil("");
  const std::vector<std::string> no_hints;
  deck::Reader reader(&root, "", places, no_hints, findings);
  describe(reader, machine);
  reader.finish();
  if (places.given("version") && places.readable("version") && machine.version != machine_version)
    throw UserError(places.of("version"),
                    fmt::format("a machine file of version {}; this program reads version {}",
                                machine.version, machine_version));
  check_points(machine, places, findings);
  if (!findings.empty()) {
    deck::sort(findings);
    throw UserError(std::move(findings));
  }
  return machine;
}

Machine read_machine(const std::string& path) {
  return parse_machine(deck::read_deck_file(path, "machine file"), path);
}

std::string machine_text(const Machine& machine) {
  std::string text =
      "# Written by `trireme bench reduce --fit` and read by `trireme plan --machine`: see "
      "docs/guide/tuning.md.\n";
  Machine copy = machine;  // visitors may change what they visit
  Writer writer("", "", text);
  describe(writer, copy);
  return text;
}

}  // namespace trireme::plan
