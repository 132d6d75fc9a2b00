// SPDX-License-Identifier: Apache-2.0
#include "deck/deck.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/kernel_text.hpp"
#include "base/text.hpp"
#include "files/path.hpp"

#include "deck/check.hpp"
#include "deck/reader.hpp"
#include "deck/survey.hpp"
#include "deck/yaml.hpp"

namespace trireme::deck {

std::string elsewhere(const Diagnostic& finding) {
  std::string line = to_string(finding);
  constexpr std::string_view label = "error: ";
  if (const auto at = line.find(label); at != std::string::npos)
    line.erase(at, label.size());
  return line;
}

namespace {

bool is_path(const std::string& text) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  };
  return !text.empty() && text.front() != '.' && text.back() != '.' &&
         text.find("..") == std::string::npos && std::ranges::all_of(text, fits);
}

bool from_command_line(const Node& node) {
  return node.key_place.file == command_line;
}

/// Puts `value` with its key into `map`. It replaces a value of the deck; a value of an earlier
/// override becomes a duplicate, which the reader reports.
void lay_over(Node& map, Node value) {
  Node* old = child_of(map, value.key);
  if (old == nullptr) {
    map.children.push_back(std::move(value));
  } else if (old->kind == Node::Kind::map && value.kind == Node::Kind::map) {
    for (Node& inner : value.children) lay_over(*old, std::move(inner));
  } else if (from_command_line(*old)) {
    map.children.push_back(std::move(value));
  } else {
    *old = std::move(value);
  }
}

/// Applies `text`, the `number`-th override from 1, to `root`, a map. An invalid override is a
/// finding at "command line:number:column" and changes nothing.
void apply_override(Node& root,
                    const std::string& text,
                    int number,
                    std::vector<Diagnostic>& findings) {
  const auto place = [&](std::size_t offset) {
    return Place{command_line, number, static_cast<int>(offset) + 1};
  };
  const std::size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  if (equals == std::string::npos || !is_path(path)) {
    findings.push_back(
        {place(0), "", fmt::format("'{}' is not an override. Write section.key=value.", text)});
    return;
  }
  if (text.find_first_of("\n\r") != std::string::npos) {
    findings.push_back(
        {place(0), path,
         "an override must not contain a line break. Write a value of several lines in the deck."});
    return;
  }
  const std::size_t found_before = findings.size();
  const std::string yaml = masked(text.substr(equals + 1));
  Node value = parse_yaml(yaml, {command_line, number, static_cast<int>(equals) + 2}, findings);
  if (findings.size() > found_before)
    return;
  const std::string raw = trimmed(text.substr(equals + 1));
  if ((value.kind == Node::Kind::null && !raw.empty() && raw.front() == '#') ||
      (value.kind == Node::Kind::word && !value.quoted && value.word != trimmed(yaml))) {
    findings.push_back(
        {place(equals + 1), path,
         fmt::format("'{}' is not a single YAML word{}. Quote the value.", raw,
                     raw.find('#') == std::string::npos ? "" : " (# begins a comment)")});
    return;
  }
  if (value.kind == Node::Kind::null)
    value.place = place(equals + 1);

  // Wraps the value in maps, from the innermost key outwards.
  std::size_t end = path.size();
  for (std::size_t dot = path.rfind('.');; dot = path.rfind('.', end - 1)) {
    const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
    value.key = path.substr(begin, end - begin);
    value.key_place = place(begin);
    if (dot == std::string::npos)
      break;
    Node around;
    around.kind = Node::Kind::map;
    around.place = place(0);
    around.children.push_back(std::move(value));
    value = std::move(around);
    end = dot;
  }
  lay_over(root, std::move(value));
}

/// Far above the size of any deck, so that a large file given by mistake is not read.
constexpr std::size_t largest_deck = std::size_t{1} << 20U;

constexpr int deck_timeout_ms = 10'000;

/// Adds the text of the override to findings on the command line.
void cite_override(Diagnostic& finding, const std::vector<std::string>& overrides) {
  if (finding.place.file != command_line)
    return;
  const std::string quoted =
      "'" + overrides.at(static_cast<std::size_t>(finding.place.line) - 1) + "'";
  if (finding.text.find(quoted) == std::string::npos)
    finding.text += " (in " + quoted + ")";
}

}  // namespace

std::shared_ptr<const text::Tokenizer> read_tokenizer(const JobConfig& config) {
  return config.data.in_bytes() ? text::byte_tokenizer()
                                : text::load_tokenizer(config.data.tokenizer);
}

std::shared_ptr<const text::Tokenizer> Deck::tokenizer_of_data() const {
  return has_unknown_tokens(config.data, shape().vocabulary) ? nullptr : tokenizer;
}

bool KeyPlaces::readable(const std::string& path) const {
  for (std::string part = path; !spoilt_.contains(part); part.resize(part.rfind('.')))
    if (part.find('.') == std::string::npos)
      return !spoilt_.contains("");
  return false;
}

Place KeyPlaces::of(const std::string& path) const {
  for (std::string part = path;; part.resize(part.rfind('.'))) {
    if (const auto found = given_.find(part); found != given_.end())
      return found->second;
    if (part.find('.') == std::string::npos)
      return Place{file_};
  }
}

std::vector<Diagnostic> KeyPlaces::placed(std::vector<Diagnostic> findings) const {
  for (Diagnostic& one : findings)
    if (one.place.file.empty() && !one.subject.empty())
      one.place = of(one.subject);
  return findings;
}

std::string read_deck_file(const std::string& path, const char* kind) {
  const auto refuse = [&](const std::string& text) { throw UserError(Place{path}, text); };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    refuse(fmt::format("this is a directory. Give a {}, which is a YAML file.", kind));
  // A pipe such as `<(…)` is allowed, but not one without a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) {
    const int error = errno;
    files::expect_about_the_path(error, "open " + path);
    refuse(fmt::format("cannot read the {}: {}", kind, std::strerror(error)));
  }
  int failed = 0;
  std::string bytes, problem;
  std::array<char, 4096> block{};
  while (problem.empty() && bytes.size() <= largest_deck) {
    pollfd ready{file, POLLIN, 0};
    if (::poll(&ready, 1, deck_timeout_ms) == 0) {
      problem = "no process writes into this pipe";
      break;
    }
    const auto count = ::read(file, block.data(), block.size());
    if (count < 0 && errno != EINTR && errno != EAGAIN)
      failed = errno;
    if (count == 0 || failed != 0)
      break;
    bytes.append(block.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  }
  ::close(file);
  if (failed != 0) {
    files::expect_about_the_path(failed, "read " + path);
    problem = std::strerror(failed);
  }
  if (!problem.empty())
    refuse(fmt::format("cannot read the {}: {}", kind, problem));
  if (bytes.size() > largest_deck)
    refuse(fmt::format("the file is longer than {}; a {} is a short YAML file",
                       bytes_text(largest_deck), kind));
  return bytes;
}

Deck read(const std::string& bytes,
          const std::string& path,
          const std::vector<std::string>& overrides,
          const References& references,
          std::vector<Diagnostic>& findings) {
  Deck deck{{}, KeyPlaces(path)};
  const auto give_up = [&](Place place, std::string text) {
    findings.push_back({std::move(place), "", std::move(text)});
    deck.places.spoil("");
    return deck;
  };
  if (bytes.find('\0') != std::string::npos)
    return give_up({path}, "this is not a text file: it contains zero bytes");
  Node root = parse_yaml(masked(bytes), {path}, findings);
  if (root.kind == Node::Kind::null)
    return give_up({path}, "the deck is empty. `trireme help deck` lists all keys.");
  if (root.kind == Node::Kind::broken) {
    deck.places.spoil("");
    return deck;
  }
  if (root.kind != Node::Kind::map)
    return give_up(root.place, fmt::format("expected 'section:', found {}", in_words(root)));
  for (std::size_t i = 0; i < overrides.size(); ++i)
    apply_override(root, overrides[i], static_cast<int>(i) + 1, findings);
  put_values(root, "", references, findings);

  std::vector<std::string> all_keys;
  for (const Entry& entry : survey(JobConfig{})) all_keys.push_back(entry.path);
  Reader reader(&root, "", deck.places, all_keys, findings);
  describe(reader, deck.config);
  reader.finish();
  return deck;
}

Deck examine(const std::string& bytes,
             const std::string& path,
             const std::vector<std::string>& overrides,
             const Circumstances& circumstances,
             std::vector<Diagnostic>& findings) {
  Deck deck =
      read(bytes, path, overrides,
           circumstances.references ? *circumstances.references : references_in(bytes, overrides),
           findings);
  deck.tokenizer = circumstances.tokenizer;
  if (!deck.tokenizer && deck.places.readable("data.tokenizer"))
    find_at("data.tokenizer", deck.places, findings,
            [&] { deck.tokenizer = read_tokenizer(deck.config); });
  check(deck, circumstances, findings);
  check_weights(deck, circumstances, findings);
  return deck;
}

Deck parse(const std::string& bytes,
           const std::string& path,
           const std::vector<std::string>& overrides,
           const std::optional<Circumstances>& circumstances) {
  std::vector<Diagnostic> findings;
  Deck deck = circumstances
                  ? examine(bytes, path, overrides, *circumstances, findings)
                  : read(bytes, path, overrides, references_in(bytes, overrides), findings);
  settle(std::move(findings), overrides);
  return deck;
}

void settle(std::vector<Diagnostic> findings, const std::vector<std::string>& overrides) {
  if (findings.empty())
    return;
  for (Diagnostic& finding : findings) cite_override(finding, overrides);
  const auto key = [](const Diagnostic& d) {
    return std::tuple(d.place.file == command_line, d.place.line, d.place.column);
  };
  std::ranges::stable_sort(findings, {}, key);
  throw UserError(std::move(findings));
}

}  // namespace trireme::deck
