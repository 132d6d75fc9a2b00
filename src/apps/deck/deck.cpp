// SPDX-License-Identifier: Apache-2.0
#include "deck/deck.hpp"

#include <algorithm>
#include <array>
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

#include "base/text.hpp"
#include "files/path.hpp"

#include "deck/check.hpp"
#include "deck/override.hpp"
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

/// Reads the tokenizer; errors become findings.
void find_tokenizer(Deck& deck, std::vector<Diagnostic>& findings) {
  constexpr const char* key = "data.tokenizer";
  try {
    deck.tokenizer = read_tokenizer(deck.config);
  } catch (const UserError& error) {
    for (const Diagnostic& finding : error.findings())
      findings.push_back({deck.places.of(key), key,
                          finding.place.file.empty() ? finding.text : elsewhere(finding)});
  } catch (const StorageError& error) {
    findings.push_back({deck.places.of(key), key, error.what()});
  }
}

}  // namespace

std::shared_ptr<const trireme::text::Tokenizer> read_tokenizer(const JobConfig& config) {
  return config.data.in_bytes() ? trireme::text::byte_tokenizer()
                                : trireme::text::load_tokenizer(config.data.tokenizer);
}

std::shared_ptr<const trireme::text::Tokenizer> Deck::tokenizer_of_data() const {
  const trireme::batches::DataConfig& data = config.data;
  const bool other = has_token_files(data) || data.train.synthetic != 0;
  return data.in_bytes() && other && shape().vocabulary > 256 ? nullptr : tokenizer;
}

bool KeyPlaces::readable(const std::string& path) const {
  if (spoilt_.contains(""))
    return false;
  for (std::string part = path;; part.resize(part.rfind('.'))) {
    if (spoilt_.contains(part))
      return false;
    if (part.find('.') == std::string::npos)
      return true;
  }
}

Place KeyPlaces::of(const std::string& path) const {
  for (std::string part = path;; part.resize(part.rfind('.'))) {
    if (const auto found = given_.find(part); found != given_.end())
      return found->second;
    if (part.find('.') == std::string::npos)
      return Place{file_, 0, 0};
  }
}

std::string read_deck_file(const std::string& path, const char* kind) {
  const auto refuse = [&](const std::string& text) { throw UserError(Place{path, 0, 0}, text); };
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
    throw UserError(Place{path, 0, 0},
                    fmt::format("the file is longer than {}; a {} is a short YAML file",
                                bytes_text(static_cast<double>(largest_deck)), kind));
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
    return give_up({path, 0, 0}, "this is not a text file: it contains zero bytes");
  Node root = parse_yaml(masked(bytes), {path}, findings);
  if (root.kind == Node::Kind::null)
    return give_up({path, 0, 0}, "the deck is empty. `trireme help deck` lists all keys.");
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

Deck parse(const std::string& bytes,
           const std::string& path,
           const std::vector<std::string>& overrides,
           const std::optional<Circumstances>& circumstances) {
  std::vector<Diagnostic> findings;
  Deck deck = read(bytes, path, overrides,
                   circumstances && circumstances->references ? *circumstances->references
                                                              : references_in(bytes, overrides),
                   findings);
  if (circumstances) {
    deck.tokenizer = circumstances->tokenizer;
    if (!deck.tokenizer && deck.places.readable("data.tokenizer"))
      find_tokenizer(deck, findings);
    check(deck, *circumstances, findings);
    check_weights(deck, *circumstances, findings);
  }
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

}  // namespace trireme::deck
