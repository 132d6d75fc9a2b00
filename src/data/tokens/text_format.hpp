// SPDX-License-Identifier: Apache-2.0
// The format of documents in text files, and notes that are collected while they are read.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/key.hpp"
#include "base/log.hpp"

#include "text/spellings.hpp"
#include "text/tokenizer.hpp"

namespace trireme::tokens {

/// Whether a line that is not a JSON object with the text is an error or is skipped.
enum class BadLines : std::uint8_t { stop, skip };

struct TextFormat {
  TextFormat() = default;
  /// JSON lines with the text under this key; empty: each file is a document of plain text.
  explicit TextFormat(std::string key) : field(std::move(key)) {}

  std::string field;
  std::string separator;  ///< between documents of plain text; empty: each file is a document
  bool separator_given = false;  ///< it was named, and not chosen by auto
  BadLines bad_lines = BadLines::stop;
  text::Spellings uncut;    ///< what no cut may lie in or after: the separator and added tokens
  text::Spellings special;  ///< other special tokens, which are counted where they are spelled out
};

/// The format that the keys of a deck describe. `separator`: auto (the spelling of the tokenizer's
/// end-of-text token, where it has one), none, blank-line, or the separator itself. Throws
/// UserError with `key` for a separator with JSON lines, or with a tokenizer without an end-of-text
/// token.
TextFormat text_format(const std::string& field,
                       const std::string& separator,
                       BadLines bad_lines,
                       const text::Tokenizer& tokenizer,
                       const std::string& key);

/// Counted while text is read.
struct TextNotes {
  static constexpr std::size_t most_places = 10;

  std::int64_t documents = 0, separators = 0, bad_lines = 0, spelled = 0;
  std::vector<std::string> bad_places;  ///< the first ones, with the reason
  std::string spelled_as;               ///< the first special token that was spelled out

  auto fields() {
    return std::tie(documents, separators, bad_lines, spelled, bad_places, spelled_as);
  }
  void add(const TextNotes& other);
  /// Logs a line for each note, and warnings.
  void say(const TextFormat& format, const std::string& key, Log& log) const;
};

}  // namespace trireme::tokens
