// SPDX-License-Identifier: Apache-2.0
#include "tokens/text_format.hpp"

#include <fmt/format.h>

#include "text/json_file.hpp"

namespace trireme::tokens {

TextFormat text_format(const std::string& field,
                       const std::string& separator,
                       BadLines bad_lines,
                       const text::Tokenizer& tokenizer,
                       const std::string& key) {
  const bool automatic = separator == "auto", none = separator == "none" || separator.empty();
  const auto refuse = [&](const std::string& what) {
    text::refuse_key("", key, fmt::format("'{}' {}", separator, what));
  };
  TextFormat format(field);
  format.bad_lines = bad_lines;
  const auto end_of_text = tokenizer.end_of_text();
  if (!automatic && !none && !field.empty())
    refuse("separates documents of plain text, but every line of JSON lines is a document");
  if (!automatic && !none && !end_of_text)
    refuse("cannot become a token: the tokenizer has no end-of-text token");
  std::vector<std::string> uncut = tokenizer.uncut(), special;
  for (const auto& [spelling, token] : tokenizer.special_tokens())
    if (automatic && token == end_of_text && field.empty())
      format.separator = spelling;
    else
      special.push_back(spelling);
  if (!automatic && !none) {
    format.separator = separator == "blank-line" ? "\n\n" : separator;
    format.separator_given = true;
    std::erase(special, format.separator);
  }
  if (!format.separator.empty())
    uncut.push_back(format.separator);
  format.uncut = text::Spellings(std::move(uncut));
  format.special = text::Spellings(std::move(special));
  return format;
}

void TextNotes::add(const TextNotes& other) {
  documents += other.documents;
  separators += other.separators;
  bad_lines += other.bad_lines;
  spelled += other.spelled;
  for (const std::string& place : other.bad_places)
    if (bad_places.size() < most_places)
      bad_places.push_back(place);
  if (spelled_as.empty())
    spelled_as = other.spelled_as;
}

void TextNotes::say(const TextFormat& format, const std::string& key, Log& log) const {
  if (separators > 0)
    log.info("{}: found {} separators {:?} between {} documents", key, separators, format.separator,
             documents);
  else if (format.separator_given && documents > 0)
    log.warning("{}: the separator {:?} is nowhere in the text, so every file is one document{}",
                key, format.separator,
                format.separator == "\n\n" ? R"(. Lines that end in CR LF need "\r\n\r\n")" : "");
  if (bad_lines > 0) {
    std::string places;
    for (const std::string& place : bad_places) places += "\n  " + place;
    log.warning("{}: skipped {} bad lines. The first of them:{}", key, bad_lines, places);
  }
  if (spelled > 0)
    log.warning(
        "{}: special tokens are spelled out {} times in the text ({} is one of them). They are "
        "encoded as ordinary text and do not begin documents",
        key, spelled, spelled_as);
}

}  // namespace trireme::tokens
