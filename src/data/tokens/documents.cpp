// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "files/descriptor.hpp"

#include "text/json_file.hpp"
#include "text/pieces.hpp"
#include "tokens/sources.hpp"

namespace trireme::tokens {
namespace {

/// Approximate length of pieces of plain text.
constexpr std::size_t piece_bytes = std::size_t{4} << 20U;
constexpr std::size_t read_bytes = std::size_t{1} << 20U;
/// What next_cut() must see before the place from which it looks.
constexpr std::int64_t cut_context = 3;

/// Lines that end before byte `end` of the file.
std::int64_t lines_before(const std::string& path, std::int64_t end) {
  if (end == 0)
    return 0;
  const auto input = open_text(path, 0, end);
  std::string block(read_bytes, '\0');
  std::int64_t lines = 0;
  while (const auto count = input->read_some(std::as_writable_bytes(std::span(block))))
    lines += std::count(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count), '\n');
  return lines;
}

/// next_cut() at which none of `uncut` is cut.
std::size_t uncovered_cut(std::string_view text,
                          std::size_t from,
                          bool whole,
                          const text::Spellings& uncut) {
  for (;;) {
    const std::size_t cut = text::next_cut(text, from, whole);
    if (cut >= text.size() || !uncut.covers(text, cut))
      return cut;
    from = cut + 1;
  }
}

/// The first byte of half a surrogate pair, or npos. JSON spells one \ud83d and the like.
std::size_t find_half_surrogate(std::string_view line, std::size_t from) {
  const auto unit = [&](std::size_t at) -> unsigned {
    unsigned value = 0;
    const auto* const begin = line.data() + std::min(at + 2, line.size());
    const auto* const end = line.data() + std::min(at + 6, line.size());
    return line.substr(std::min(at, line.size())).starts_with("\\u") && end - begin == 4 &&
                   std::from_chars(begin, end, value, 16).ptr == end
               ? value
               : 0;
  };
  for (std::size_t at = line.find('\\', from); at != std::string_view::npos;
       at = line.find('\\', at)) {
    const unsigned first = unit(at), second = unit(at + 6);
    const bool high = first >= 0xD800 && first < 0xDC00, low = first >= 0xDC00 && first < 0xE000;
    const bool pair = high && second >= 0xDC00 && second < 0xE000;
    if ((high && !pair) || low)
      return at;
    at += pair ? 12 : 2;
  }
  return std::string_view::npos;
}

/// Why JSON ends at this byte (from 1 on) of a line. The parser ends after bytes that are not UTF-8;
/// `byte` becomes the first of them.
std::string reason_at(std::string_view line, std::size_t& byte) {
  const std::string_view rest = line.substr(std::min(byte - 1, line.size()));
  for (const char* word : {"NaN", "Infinity"})
    if (rest.starts_with(word))
      return fmt::format("contains {}, which is not JSON: write null instead", word);
  if (byte > line.size())
    return "ends within a JSON object";
  for (std::size_t at = 0, size = 0; at < byte; at += size) {
    size = character_bytes(line.substr(at));
    if (const auto lead = static_cast<unsigned char>(line[at]); lead >= 0x80 && size == 1) {
      byte = at + 1;
      return fmt::format(
          "contains the byte 0x{:02x}, which is not UTF-8. Convert the file, for example with "
          "iconv",
          lead);
    }
  }
  return fmt::format("is not valid JSON from here on: {:?}", rest.substr(0, 20));
}

/// ", but 'a', 'b'"
std::string keys_of(const nlohmann::json& object) {
  constexpr int most = 8;
  std::string text;
  int count = 0;
  for (const auto& [key, ignored] : object.items())
    if (count++ < most)
      text += fmt::format("{}'{}'", text.empty() ? ", but " : ", ", text::shortened(key));
  return text + (count > most ? ", ..." : "");
}

}  // namespace

std::int64_t boundary(const std::string& path,
                      const TextFormat& format,
                      std::int64_t at,
                      std::int64_t until) {
  const files::InputFile file(path);
  if (at <= 0)
    return 0;
  const bool lines = !format.field.empty();
  const auto before =
      lines ? 1 : std::max(cut_context, static_cast<std::int64_t>(format.uncut.longest()));
  const std::int64_t front = std::max<std::int64_t>(at - before, 0);
  std::string window;
  for (std::size_t wanted = document_front;; wanted *= 2) {
    if (at >= file.size())
      return file.size();
    window.resize(wanted);
    window.resize(file.read_some(front, std::as_writable_bytes(std::span(window))));
    const bool whole = front + std::ssize(window) >= file.size();
    // A line begins after the line break at or before `at` - 1.
    const std::size_t cut =
        lines ? window.find('\n')
              : uncovered_cut(window, static_cast<std::size_t>(at - front), whole, format.uncut);
    if (cut < window.size())
      return front + static_cast<std::int64_t>(cut) + (lines ? 1 : 0);
    if (whole)
      return file.size();
    if (lines && front + std::ssize(window) > until)
      return until;
  }
}

std::string front_of(const std::string& path, const TextFormat& format, std::int64_t at) {
  const std::size_t size = format.separator.size();
  std::int64_t begin = 0;
  std::string window;
  const files::InputFile file(path);
  for (std::int64_t end = at; begin == 0 && end > 0 && size > 0;) {
    const auto first =
        std::max<std::int64_t>(end - static_cast<std::int64_t>(document_front + size), 0);
    window.resize(static_cast<std::size_t>(end - first));
    file.read(first, std::as_writable_bytes(std::span(window)));
    if (const std::size_t found = window.rfind(format.separator); found != std::string::npos)
      begin = first + static_cast<std::int64_t>(found + size);
    end = first == 0 ? 0 : first + static_cast<std::int64_t>(size) - 1;
  }
  std::string front = open_text(path, begin, file.size())->read_front(document_front);
  return size > 0 ? front.substr(0, front.find(format.separator)) : front;
}

bool validates(std::string_view front, double fraction) {
  return std::ldexp(static_cast<double>(hash_bytes(front.substr(0, document_front))), -64) <
         fraction;
}

Documents::Documents(std::string path, TextFormat format, std::int64_t begin, std::int64_t end)
    : path_(std::move(path)),
      format_(std::move(format)),
      begin_(begin),
      at_(begin),
      input_(open_text(path_, begin, end)),
      begins_(begin == 0) {}

void Documents::fill(std::size_t bytes) {
  if (ended_ || rest().size() >= bytes)
    return;
  buffer_.erase(0, std::exchange(used_, 0));
  while (!ended_ && buffer_.size() < bytes) {
    const std::size_t size = buffer_.size();
    buffer_.resize(size + read_bytes);
    const auto count = input_->read_some(std::as_writable_bytes(std::span(buffer_)).subspan(size));
    buffer_.resize(size + count);
    ended_ = count == 0;
  }
}

bool Documents::next(TextPiece& piece) {
  if (!(format_.field.empty() ? next_text(piece) : next_line(piece)))
    return false;
  notes_.documents += piece.begins_document ? 1 : 0;
  for (auto found = format_.special.find(piece.text); found.at != std::string_view::npos;
       found = format_.special.find(piece.text, found.at + 1)) {
    ++notes_.spelled;
    if (notes_.spelled_as.empty())
      notes_.spelled_as = format_.special.texts()[found.number];
  }
  return true;
}

void Documents::skip_separators() {
  const std::size_t size = format_.separator.size();
  bool found = false;
  for (std::size_t end = 0; size > 0;) {  // of the last one, counted from what is left
    fill(end + size);
    const std::size_t begin = rest().substr(0, end + size).find(format_.separator);
    if (begin == std::string_view::npos) {
      pass(end);
      return;
    }
    notes_.separators += std::exchange(found, true) ? 0 : 1;
    begins_ = true;
    pass(begin + 1);
    end = size - 1;
  }
}

void Documents::pass(std::size_t bytes) {
  used_ += bytes;
  at_ += static_cast<std::int64_t>(bytes);
}

std::size_t Documents::end_of_piece(std::size_t wanted) const {
  if (!format_.separator.empty())
    if (const std::size_t found = rest().find(format_.separator); found != std::string_view::npos)
      return found;
  if (ended_)
    return rest().size();
  if (rest().size() < wanted)
    return 0;
  const std::size_t cut = uncovered_cut(rest(), wanted / 2, false, format_.uncut);
  return cut + format_.uncut.longest() < rest().size() ? cut : 0;
}

bool Documents::next_text(TextPiece& piece) {
  skip_separators();
  for (std::size_t wanted = 2 * piece_bytes;; wanted *= 2) {
    std::size_t end = end_of_piece(wanted);
    if (end == 0 && !ended_) {
      fill(wanted);
      end = end_of_piece(wanted);
    }
    if (end == 0 && !ended_)
      continue;
    if (end == 0)
      return false;
    piece = {rest().substr(0, end), std::exchange(begins_, false), at_};
    pass(end);
    return true;
  }
}

bool Documents::next_line(TextPiece& piece) {
  for (;;) {
    std::size_t end = rest().find('\n');
    while (end == std::string::npos && !ended_) {
      const std::size_t searched = rest().size();
      fill(searched + 1);
      end = rest().find('\n', searched);
    }
    if (end == std::string::npos && rest().empty())
      return false;
    const auto line = rest().substr(0, end);
    const std::int64_t at = at_;
    pass(line.size() + (end == std::string::npos ? 0 : 1));
    ++lines_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    std::string problem;
    std::size_t column = 1;
    if (!read_line(line, problem, column)) {
      refuse_line(problem, column);
      continue;
    }
    piece = {text_, true, at};
    return true;
  }
}

bool Documents::read_line(std::string_view line, std::string& problem, std::size_t& column) {
  nlohmann::json object;
  std::string whole;
  try {
    for (std::size_t half = find_half_surrogate(line, 0); half != std::string_view::npos;
         half = find_half_surrogate(line, half)) {
      if (whole.empty())
        whole = line;
      whole.replace(half + 2, 4, "fffd");
      line = whole;
    }
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    column = std::max<std::size_t>(error.byte, 1);
    problem = reason_at(line, column);
    return false;
  } catch (const nlohmann::json::out_of_range&) {  // tells no place
    problem = "contains a number that a double cannot hold";
    return false;
  }
  if (!object.is_object()) {
    problem = fmt::format(
        "is not a JSON object but {}; without --field or data's `field` the file is plain text",
        object.type_name());
    return false;
  }
  const auto found = object.find(format_.field);
  if (found == object.end())
    problem = fmt::format("has no key '{}'{}", format_.field, keys_of(object));
  else if (!found->is_string())
    problem = fmt::format("has '{}' that is not text but {}", format_.field, found->type_name());
  else
    text_ = found->get<std::string>();
  return problem.empty();
}

void Documents::refuse_line(const std::string& problem, std::size_t column) {
  const bool skips = format_.bad_lines == BadLines::skip;
  ++notes_.bad_lines;
  if (skips && notes_.bad_places.size() >= TextNotes::most_places)
    return;
  const auto number = [](std::int64_t value) {
    return static_cast<int>(std::min<std::int64_t>(value, 2'000'000'000));
  };
  const Place place{path_, number(lines_before(path_, begin_) + lines_),
                    number(static_cast<std::int64_t>(column))};
  if (!skips)
    throw UserError(place, "the line " + problem);
  notes_.bad_places.push_back(
      fmt::format("{}:{}:{}: the line {}", place.file, place.line, place.column, problem));
}

std::vector<std::int32_t> encode_text(const std::vector<TextFile>& files,
                                      const TextFormat& format,
                                      const text::Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens;
  for (const TextFile& file : files) {
    Documents documents(file.path, format);
    encode_documents(documents, file.path, tokenizer, [&](const TextPiece&, const auto& more) {
      tokens.insert(tokens.end(), more.begin(), more.end());
    });
  }
  return tokens;
}

}  // namespace trireme::tokens
