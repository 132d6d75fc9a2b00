// SPDX-License-Identifier: Apache-2.0
#include "plan/machine.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

#include "deck/deck.hpp"
#include "deck/reader.hpp"
#include "deck/value.hpp"
#include "deck/yaml.hpp"

namespace trireme::plan {
namespace {

/// The describe() visitor that writes one YAML line per key. An item that contains lists must begin
/// with a plain key, whose line gets the item's dash.
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
      deck::LineWriter line;
      describe(line, item);
      if (line.has_lists()) {
        Writer inner(indent_ + "    ", indent_ + "  - ", text_);
        describe(inner, item);
      } else {
        text_ += fmt::format("{}  - {}\n", indent_, line.map());
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

double distance(double a, double b) {
  return std::abs(std::log(a / b));
}

double crowding(std::int64_t all, std::int64_t cpus) {
  return std::max(1.0, static_cast<double>(all) / static_cast<double>(cpus));
}

Machine merged(Machine older, const Machine& newer) {
  const auto replace = [](auto& rows, const auto& fresh, const auto& same) {
    for (const auto& row : fresh) {
      std::erase_if(rows, [&](const auto& other) { return same(row, other); });
      rows.push_back(row);
    }
  };
  replace(older.links, newer.links, std::equal_to<Wire>());
  replace(older.compute, newer.compute, [](const Compute& a, const Compute& b) {
    return a.model == b.model && a.precision == b.precision && a.threads == b.threads &&
           a.micro_sequences == b.micro_sequences && a.ranks_on_host == b.ranks_on_host;
  });
  older.processor = newer.processor;
  older.cpus = newer.cpus;
  older.ranks_per_host = std::max(older.ranks_per_host, newer.ranks_per_host);
  older.storage_bytes_per_s = newer.storage_bytes_per_s;
  older.storage_latency_s = newer.storage_latency_s;
  older.storage_tensor_s = newer.storage_tensor_s;
  return older;
}

std::string machine_table(const Machine& machine) {
  // There is no bandwidth if all sizes took equally long, up to noise.
  const auto bandwidth = [](double seconds_per_byte) {
    return seconds_per_byte > 1e-15 ? fmt::format("{:.3f}", 1e-9 / seconds_per_byte) : "-";
  };
  std::string text = fmt::format("{:<15}{:>6}{:>7}{:>8}  {:<16}{:<6}{:>12}{:>12}{:>10}{:>12}\n",
                                 "transport", "hosts", "ranks", "groups", "operation", "dtype",
                                 "latency us", "GB/s", "residual", "sizes");
  for (const Link& link : machine.links) {
    for (const Collective& one : link.collectives)
      text += fmt::format("{:<15}{:>6}{:>7}{:>8}  {:<16}{:<6}{:>12.2f}{:>12}{:>8.1f} %{:>12}\n",
                          word(link.transport), link.hosts, link.ranks, link.groups,
                          word(one.operation), word(one.dtype), one.latency_s * 1e6,
                          bandwidth(one.seconds_per_byte), 100 * one.residual, one.points.size());
    text += fmt::format(
        "  a step's sums {:.1f} us, its agreement {:.1f} us; during a collective, compute is "
        "{:.0f} % slower, and the collective takes {:.2f} times as long\n",
        link.sums_s * 1e6, link.control_s * 1e6, 100 * link.compute_lost, link.stretch);
    if (link.copy_s_per_byte > 0)
      text += fmt::format("  copies in memory: {}/s by each rank\n",
                          bytes_text(1 / link.copy_s_per_byte));
  }
  for (const Compute& row : machine.compute)
    text +=
        fmt::format("micro-step of {} sequences, {}, {}, {} on a host: {} ({:.4g} TFLOP/s); {}\n",
                    row.micro_sequences, word(row.precision), counted(row.threads, "thread"),
                    counted(row.ranks_on_host, "rank"), duration_text(row.micro_step_s),
                    row.micro_step_flops / row.micro_step_s / 1e12, row.model);
  if (machine.storage_bytes_per_s > 0)
    text += fmt::format(
        "checkpoints: {}, {} per tensor, {}/s\n", duration_text(machine.storage_latency_s),
        duration_text(machine.storage_tensor_s), bytes_text(machine.storage_bytes_per_s));
  return text;
}

Machine parse_machine(const std::string& bytes, const std::string& path) {
  std::vector<Diagnostic> findings;
  deck::KeyPlaces places(path);
  Machine machine;
  const deck::Node root = deck::parse_yaml(bytes, {.file = path}, findings);
  if (root.kind == deck::Node::Kind::null)
    throw UserError(Place{path}, "the machine file is empty");
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
  deck::settle(std::move(findings), {});
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
