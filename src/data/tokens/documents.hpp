// SPDX-License-Identifier: Apache-2.0
// Reads the documents of a text file in pieces that can be encoded separately: the tokens of a
// document are the concatenated tokens of its pieces.
//
//   plain text   The file is one document, or several with separators between them, which belong to
//                no document. A long document comes in pieces, cut where a cut does not change its
//                tokens (text/pieces.hpp). Adjacent or overlapping separators count as one, and
//                empty documents are skipped.
//   JSON lines   Every line is an object, and the text under one key is a document. Blank lines are
//                skipped. Half of a surrogate pair becomes U+FFFD.
//
// 1. Memory does not grow with the file, only with its longest line or its longest stretch that
//    cannot be cut.
// 2. A file may be read in ranges, which begin and end at a boundary(). Boundaries depend on the
//    file alone, so the documents and pieces are the same for any division into ranges.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

#include "tokens/sources.hpp"
#include "tokens/text_format.hpp"
#include "tokens/text_input.hpp"

namespace trireme::tokens {

struct TextPiece {
  std::string_view text;         ///< until the next call
  bool begins_document = false;  ///< the first piece of a document
  std::int64_t at = 0;  ///< its first byte, or that of its line of JSON, in the text of the file
};

/// The first `boundary` at or after byte `at` of a file that is not compressed; its size when there
/// is none. A search for a line that reaches byte `until` ends with that or a later byte.
std::int64_t boundary(const std::string& path,
                      const TextFormat& format,
                      std::int64_t at,
                      std::int64_t until = std::numeric_limits<std::int64_t>::max());

/// The front of a document, which identifies it: its first 64 KiB.
inline constexpr std::size_t document_front = std::size_t{64} << 10U;

/// The front of the document of plain text that byte `at` of a file belongs to, which is not
/// compressed: its first document_front bytes.
std::string front_of(const std::string& path, const TextFormat& format, std::int64_t at);

/// Whether a document with this front is for validation: its hash as a fraction of 2^64 is below
/// `fraction`.
bool validates(std::string_view front, double fraction);

/// Sequential; one thread uses it.
class Documents {
 public:
  /// [begin, end) are two boundaries of a file that is not compressed; end -1: to its end.
  Documents(std::string path, TextFormat format, std::int64_t begin = 0, std::int64_t end = -1);

  /// False at the end. Throws UserError with file and line for what is not such JSON, and for
  /// damaged compression; StorageError.
  bool next(TextPiece& piece);
  [[nodiscard]] const TextNotes& notes() const { return notes_; }

 private:
  bool next_text(TextPiece& piece);
  bool next_line(TextPiece& piece);
  void pass(std::size_t bytes);
  /// Skips separators at the beginning of the remaining text.
  void skip_separators();
  /// Where the first piece of the remaining text ends; 0: more must be read first.
  [[nodiscard]] std::size_t end_of_piece(std::size_t wanted) const;
  [[nodiscard]] std::string_view rest() const { return std::string_view(buffer_).substr(used_); }
  /// Reads until `bytes` remain to be used, or to the end of the input.
  void fill(std::size_t bytes);
  /// The text of a line, or what is wrong with it and at which byte, counted from 1.
  bool read_line(std::string_view line, std::string& problem, std::size_t& column);
  void refuse_line(const std::string& problem, std::size_t column);

  std::string path_;
  TextFormat format_;
  std::int64_t begin_, at_;
  std::unique_ptr<TextInput> input_;
  std::string buffer_, text_;
  std::size_t used_ = 0;  // of the buffer: what was given away
  bool ended_ = false;
  bool begins_;             // the next piece begins a document
  std::int64_t lines_ = 0;  // read in this range
  TextNotes notes_;
};

/// The tokens of documents: calls take(piece, tokens) for every piece. A document begins with the
/// tokenizer's end of text, where it has one.
template <class Take>
void encode_documents(Documents& documents,
                      const std::string& path,
                      const text::Tokenizer& tokenizer,
                      Take&& take) {
  const auto end_of_text = tokenizer.end_of_text();
  std::vector<std::int32_t> tokens;
  for (TextPiece piece; documents.next(piece);) {
    tokens.clear();
    if (piece.begins_document && end_of_text)
      tokens.push_back(*end_of_text);
    try {
      if (piece.begins_document)
        tokenizer.encode(piece.text, tokens);
      else
        tokenizer.encode_rest(piece.text, tokens);
    } catch (const std::bad_alloc&) {  // a part without white space (DNA, base64) is one word
      throw StorageError("memory", "encode " + path,
                         "out of memory. A part of a text without white space takes some 20 times "
                         "its size; break such parts into lines, or remove the file");
    }
    take(piece, tokens);
  }
}

/// All documents of the files, in order, each after the tokenizer's end-of-text token, as in a
/// run's token cache: of text that is read once and is small. Throws UserError as Documents do.
std::vector<std::int32_t> encode_text(const std::vector<TextFile>& files,
                                      const TextFormat& format,
                                      const text::Tokenizer& tokenizer);

}  // namespace trireme::tokens
