// SPDX-License-Identifier: Apache-2.0
// Parses a deck and command-line overrides into a JobConfig, or reports all mistakes in them.
//
// 1. Rank 0 reads the file and every rank parses the same bytes, so all ranks get equal configs, or
//    the same UserError, without exchanging structs.
// 2. All findings are collected, including those of cross-checks of the keys that could be read,
//    and thrown as one UserError in the order of their places.
// 3. An override `section.key=value` replaces the deck's value; a map is merged key by key. Its
//    findings are at "command line:N:COLUMN", N counting the overrides from 1.
// 4. Two other inputs are read: the tokenizer, for the model's vocabulary (in a run, one rank reads
//    it with read_tokenizer() and broadcasts it); and the headers of run.initial_weights, unless
//    the run directory contains a checkpoint from which to continue.
// 5. The place of every given key is stored, for cross-checks and the echo.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/config.hpp"
#include "deck/references.hpp"

namespace trireme::deck {

inline constexpr const char* command_line = "command line";  ///< Place::file of overrides

/// The last name of a key's path: "kind" of "optimizer.schedule.kind".
inline std::string leaf(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

/// Where each key was given; keys are dotted paths ("optimizer.schedule.kind").
class KeyPlaces {
 public:
  KeyPlaces() = default;
  explicit KeyPlaces(std::string file) : file_(std::move(file)) {}

  void give(const std::string& path, Place place) { given_[path] = std::move(place); }
  /// Marks a key or section that could not be read and has its default. "" is the whole deck.
  void spoil(const std::string& path) { spoilt_.insert(path); }

  [[nodiscard]] bool given(const std::string& path) const { return given_.contains(path); }
  /// Not given at all, or given and read.
  [[nodiscard]] bool readable(const std::string& path) const;
  /// The place of the key, of the innermost enclosing section that was given, or of the file.
  [[nodiscard]] Place of(const std::string& path) const;
  /// `findings`, those about a key at its place.
  [[nodiscard]] std::vector<Diagnostic> placed(std::vector<Diagnostic> findings) const;
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::map<std::string, Place> given_;
  std::set<std::string> spoilt_;
};

struct Deck {
  JobConfig config;
  KeyPlaces places;
  /// The tokenizer of data.tokenizer; null until parse() has read it for circumstances.
  std::shared_ptr<const text::Tokenizer> tokenizer = {};

  [[nodiscard]] model::GptShape shape() const { return shape_of(config, tokenizer.get()); }
  /// The tokenizer that produced the tokens; null if the deck does not name it, that is for token
  /// files, and for synthetic data with more than 256 tokens, with `data.tokenizer: bytes`.
  [[nodiscard]] std::shared_ptr<const text::Tokenizer> tokenizer_of_data() const;
};

/// External facts against which a deck is checked.
struct Circumstances {
  int ranks = 1;
  bool cuda = false;   ///< this build has CUDA
  bool trains = true;  ///< false: accept ranks over which the batch cannot be split
  int hosts = 1;       ///< hosts over which a plan distributes the ranks
  /// The tokenizer of data.tokenizer, if the caller has already read it; else parse() reads it.
  std::shared_ptr<const text::Tokenizer> tokenizer = {};
  /// Values of the references in deck and overrides, if the caller has already read them.
  std::optional<References> references = {};
  bool reads_weights = true;  ///< compare run.initial_weights with the model: on one rank of a run
};

/// The bytes of the file at `path`. Throws UserError if it is missing, unreadable or too long.
/// `kind` names the file in messages.
std::string read_deck_file(const std::string& path, const char* kind = "deck");

/// Reads every key; `path` only names the deck in messages. Appends findings in the order of
/// discovery and never throws.
Deck read(const std::string& bytes,
          const std::string& path,
          const std::vector<std::string>& overrides,
          const References& references,
          std::vector<Diagnostic>& findings);

/// Reads the tokenizer of data.tokenizer. Throws UserError if it is not a tokenizer; StorageError.
std::shared_ptr<const text::Tokenizer> read_tokenizer(const JobConfig& config);

/// read(), and also reads the tokenizer and calls check() and check_weights().
Deck examine(const std::string& bytes,
             const std::string& path,
             const std::vector<std::string>& overrides,
             const Circumstances& circumstances,
             std::vector<Diagnostic>& findings);

/// examine(), or without circumstances read(). Throws UserError with all findings.
Deck parse(const std::string& bytes,
           const std::string& path,
           const std::vector<std::string>& overrides,
           const std::optional<Circumstances>& circumstances = std::nullopt);

/// Throws UserError when there are findings, sorted by place: the deck from top to bottom, then the
/// command line, whose findings cite the override.
void settle(std::vector<Diagnostic> findings, const std::vector<std::string>& overrides);

}  // namespace trireme::deck
