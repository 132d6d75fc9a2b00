// SPDX-License-Identifier: Apache-2.0
// From deck bytes and command-line overrides to a JobConfig, or to everything that is wrong with
// them.
//
// 1. Bytes in, structs out: rank 0 reads the file, every rank parses the same bytes, and so all
//    ranks hold equal configs (or the same UserError) without exchanging structs.
// 2. Nothing stops at the first finding: reading collects, cross-checks of the keys that could be
//    read follow, and one UserError holds all findings in the order of their places.
// 3. An override `section.key=value` takes the place of the deck's value; a map merges key by key.
//    Its findings are at "command line:N:COLUMN", N counting the overrides from 1.
// 4. Two more things are read: the tokenizer, from which the model's vocabulary follows (one rank
//    reads it ahead, and broadcasts it: read_tokenizer); and the headers of run.initial_weights,
//    unless the run directory holds a checkpoint to go on from.
// 5. The place of every given key stays known, for cross-checks and for the origin in the echo.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/config.hpp"

namespace trireme::deck {

/// The `file` of places in overrides.
inline constexpr const char* command_line = "command line";

/// The last name of a key's path: "kind" of "optimizer.schedule.kind".
inline std::string leaf(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

/// Where each key was given; keys are dotted paths ("optimizer.schedule.kind").
class Places {
 public:
  Places() = default;
  explicit Places(std::string file) : file_(std::move(file)) {}

  void give(const std::string& path, Place place) { given_[path] = std::move(place); }
  /// The key or section could not be read: the struct holds the default, which proves nothing.
  /// "" is the whole deck.
  void spoil(const std::string& path) { spoilt_.insert(path); }

  [[nodiscard]] bool given(const std::string& path) const { return given_.contains(path); }
  /// Not given at all, or given and read.
  [[nodiscard]] bool readable(const std::string& path) const;
  /// Of the key, else of the innermost section around it that was given, else of the whole file.
  [[nodiscard]] Place of(const std::string& path) const;
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::map<std::string, Place> given_;
  std::set<std::string> spoilt_;
};

struct Deck {
  JobConfig config;
  Places places;
  /// What data.tokenizer names; null until parse() has read it, for some circumstances.
  std::shared_ptr<const trireme::text::Tokenizer> tokenizer = {};

  [[nodiscard]] trireme::model::GptShape shape() const { return shape_of(config, tokenizer.get()); }
  /// The tokenizer that made the tokens; null where the deck does not name it: token files and
  /// synthetic data of more than bytes, beside `data.tokenizer: bytes`.
  [[nodiscard]] std::shared_ptr<const trireme::text::Tokenizer> tokenizer_of_data() const;
};

/// What a deck is checked against besides itself.
struct Circumstances {
  int ranks = 1;
  bool cuda = false;   ///< this build has CUDA
  bool trains = true;  ///< a plan can be made for ranks that the batch cannot be split over
  int hosts = 1;       ///< over which a plan spreads the ranks
  /// What data.tokenizer names, where the caller has read it already; else parse() does.
  std::shared_ptr<const trireme::text::Tokenizer> tokenizer = {};
  /// Compare run.initial_weights with the model; one rank of a run does, for all of them.
  bool reads_weights = true;
};

/// The bytes of the file at `path`. Throws UserError, which calls it a `kind`, when it is missing,
/// unreadable or too long for one.
std::string read_deck_file(const std::string& path, const char* kind = "deck");

/// Reads every key; `path` only names the deck in messages. Appends all findings in the order in
/// which they were found and never throws.
Deck read(const std::string& bytes,
          const std::string& path,
          const std::vector<std::string>& overrides,
          std::vector<Diagnostic>& findings);

/// What data.tokenizer names. Throws UserError for a file that is none; StorageError.
std::shared_ptr<const trireme::text::Tokenizer> read_tokenizer(const JobConfig& config);

/// read(); and the tokenizer and check() where circumstances are given. Throws UserError with all
/// findings, sorted.
Deck parse(const std::string& bytes,
           const std::string& path,
           const std::vector<std::string>& overrides,
           const std::optional<Circumstances>& circumstances = std::nullopt);

/// By place: the deck from top to bottom, then the command line.
void sort(std::vector<Diagnostic>& findings);

}  // namespace trireme::deck
