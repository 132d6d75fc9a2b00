// SPDX-License-Identifier: Apache-2.0
// The documents of a text file, in pieces that can be encoded one by one: the tokens of a document
// are those of its pieces, one after the other.
//
//   plain text   the file is one document; a long one comes in pieces, cut where the text may be
//                cut without a change to its tokens (text/pieces.hpp)
//   JSON lines   every line is an object, and the text under one key a document; blank lines count
//                for nothing
//
// 1. Memory does not grow with the file: only with its longest line, or its longest stretch without
//    a place to cut.
// 2. A file may be read in ranges. boundary() gives where one may begin and end: a function of the
//    file alone, so that with any division into ranges the documents and pieces are the same.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <string_view>

#include "base/error.hpp"

#include "tokens/text_input.hpp"

namespace trireme::tokens {

struct TextPiece {
  std::string_view text;  ///< until the next call
  /// The first piece of a document.
  bool begins_document = false;
};

/// The first `boundary` at or after byte `at` of a file that is not compressed; its size when there
/// is none. `field` as in Documents.
std::int64_t boundary(const std::string& path, const std::string& field, std::int64_t at);

/// The front of a document, which identifies it: its first 64 KiB.
inline constexpr std::size_t document_front = std::size_t{64} << 10U;

/// The first document_front bytes of the file's text.
std::string front_of(const std::string& path);

/// Runs `encode`, which encodes text of the file `path`. Where memory runs out, the error names the
/// file: a part without white space (DNA, base64) is one word and takes some 20 times its size.
template <class Encode>
void encoding(const std::string& path, const Encode& encode) {
  try {
    encode();
  } catch (const std::bad_alloc&) {
    throw StorageError(
        "memory", "encode " + path,
        "out of memory. A part of a text without white space takes some 20 times its "
        "size; break such parts into lines, or remove the file",
        __FILE__, __LINE__);
  }
}

/// Sequential; one thread uses it.
class Documents {
 public:
  /// `field`: the key of JSON lines; empty: plain text. [begin, end) are two boundaries of a file
  /// that is not compressed; end -1: to its end.
  Documents(std::string path, std::string field, std::int64_t begin = 0, std::int64_t end = -1);

  /// False at the end. Throws UserError with file and line for what is not such JSON, and for
  /// damaged compression; StorageError.
  bool next(TextPiece& piece);

 private:
  bool next_text(TextPiece& piece);
  bool next_line(TextPiece& piece);
  /// Reads on; false at the end of the input.
  bool fill(std::size_t bytes);
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_, field_;
  std::int64_t begin_;
  TextInput input_;
  std::string buffer_, text_;
  std::size_t used_ = 0;  // of the buffer: what was given away
  bool ended_ = false, first_ = true;
  std::int64_t lines_ = 0;  // read in this range
};

}  // namespace trireme::tokens
