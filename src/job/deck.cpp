// SPDX-License-Identifier: Apache-2.0
#include "job/deck.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/text.hpp"

#include "job/check.hpp"
#include "job/override.hpp"
#include "job/reader.hpp"
#include "job/survey.hpp"
#include "job/yaml.hpp"

namespace trireme::job {
namespace {

/// Far above any deck; a token shard or an executable given by mistake is not slurped in.
constexpr std::size_t largest_deck = std::size_t{1} << 20U;

constexpr int deck_patience_ms = 10'000;

/// Findings on the command line name the override that they are about.
void cite_override(Diagnostic& finding, const std::vector<std::string>& overrides) {
  if (finding.place.file != command_line)
    return;
  const std::string quoted =
      "'" + overrides.at(static_cast<std::size_t>(finding.place.line) - 1) + "'";
  if (finding.text.find(quoted) == std::string::npos)
    finding.text += " (in " + quoted + ")";
}

}  // namespace

bool Places::readable(const std::string& path) const {
  if (spoilt_.contains(""))
    return false;
  for (std::string part = path;; part.resize(part.rfind('.'))) {
    if (spoilt_.contains(part))
      return false;
    if (part.find('.') == std::string::npos)
      return true;
  }
}

Place Places::of(const std::string& path) const {
  for (std::string part = path;; part.resize(part.rfind('.'))) {
    if (const auto found = given_.find(part); found != given_.end())
      return found->second;
    if (part.find('.') == std::string::npos)
      return Place{file_, 0, 0};
  }
}

std::string read_deck_file(const std::string& path) {
  const auto refuse = [&](const std::string& text) { throw UserError(Place{path, 0, 0}, text); };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    refuse("this is a directory; a deck is a YAML file");
  // A pipe is fine, as from `<(…)`, but not one that nobody writes into.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0)
    refuse(fmt::format("cannot read the deck: {}", std::strerror(errno)));
  std::string bytes, problem;
  std::array<char, 4096> block{};
  while (problem.empty() && bytes.size() <= largest_deck) {
    pollfd ready{file, POLLIN, 0};
    if (::poll(&ready, 1, deck_patience_ms) == 0) {
      problem = "nobody writes into this pipe";
      break;
    }
    const auto count = ::read(file, block.data(), block.size());
    if (count < 0 && errno != EINTR && errno != EAGAIN)
      problem = std::strerror(errno);
    if (count == 0)
      break;
    bytes.append(block.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  }
  ::close(file);
  if (!problem.empty())
    refuse(fmt::format("cannot read the deck: {}", problem));
  if (bytes.size() > largest_deck)
    throw UserError(Place{path, 0, 0},
                    fmt::format("this is longer than {}; a deck is a short YAML file",
                                bytes_text(static_cast<double>(largest_deck))));
  return bytes;
}

Deck read(const std::string& bytes,
          const std::string& path,
          const std::vector<std::string>& overrides,
          std::vector<Diagnostic>& findings) {
  Deck deck{{}, Places(path)};
  const auto give_up = [&](Place place, std::string text) {
    findings.push_back({std::move(place), "", std::move(text)});
    deck.places.spoil("");
    return deck;
  };
  if (bytes.find('\0') != std::string::npos)
    return give_up({path, 0, 0}, "this is no text: it holds zero bytes");
  Node root = parse_yaml(bytes, {path}, findings);
  if (root.kind == Node::Kind::null)
    return give_up({path, 0, 0}, "the deck is empty; `trireme help deck` lists its keys");
  if (root.kind == Node::Kind::broken) {
    deck.places.spoil("");
    return deck;
  }
  if (root.kind != Node::Kind::map)
    return give_up(root.place, fmt::format("{} where 'section:' belongs", in_words(root)));
  for (std::size_t i = 0; i < overrides.size(); ++i)
    apply_override(root, overrides[i], static_cast<int>(i) + 1, findings);

  std::vector<std::string> all_keys;
  for (const Entry& entry : survey(JobConfig{})) all_keys.push_back(entry.path);
  Reader reader(&root, "", deck.places, all_keys, findings);
  describe(reader, deck.config);
  reader.finish();
  return deck;
}

Deck parse(const std::string& bytes,
           const std::string& path,
           const std::vector<std::string>& overrides,
           const std::optional<Circumstances>& circumstances) {
  std::vector<Diagnostic> findings;
  Deck deck = read(bytes, path, overrides, findings);
  if (circumstances)
    check(deck, *circumstances, findings);
  if (findings.empty())
    return deck;
  for (Diagnostic& finding : findings) cite_override(finding, overrides);
  sort(findings);
  throw UserError(std::move(findings));
}

void sort(std::vector<Diagnostic>& findings) {
  const auto key = [](const Diagnostic& d) {
    return std::tuple(d.place.file == command_line, d.place.line, d.place.column);
  };
  std::ranges::stable_sort(findings, {}, key);
}

}  // namespace trireme::job
