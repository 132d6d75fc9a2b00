// SPDX-License-Identifier: Apache-2.0
// Files of tokens that other programs made. All numbers are little-endian.
//
//   llm.c      a header of 256 int32, then the tokens, nothing after them (dev/data/data_common.py
//              there). Header words: magic, version, number of tokens, zeros.
//                  magic 20240520, version 1: uint16 tokens (GPT-2's vocabulary)
//                  magic 20240801, version 7: uint32 tokens (Llama 3's)
//   Megatron   X.bin with nothing but tokens, and X.idx next to it: their type, and where sequences
//              and documents begin (megatron/core/datasets/indexed_dataset.py there)
//   NumPy      .npy arrays of integers (numpy.hpp)
//   raw        nothing but tokens; the deck gives their width
//
// All but the last state the type of their tokens, and sizes must match exactly. Several files are
// one stream; documents may continue from one llm.c shard to the next.
//
// One rank examines the files and reads every token once (check_token_files). The others receive
// its results and open a file when they first read from it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/key.hpp"

#include "tokens/token_stream.hpp"

namespace trireme::tokens {

/// How files of tokens are laid out; automatic: as the files state it.
enum class TokenFormat : std::uint8_t { automatic, uint16, uint32 };

inline constexpr std::int64_t llmc_header_bytes = 1024;
inline constexpr std::int32_t llmc_magic_2 = 20240520, llmc_magic_4 = 20240801;  // by width

/// Where the tokens of one file are.
struct TokenFile {
  std::string path;
  std::int64_t file_bytes = 0, offset = 0, tokens = 0;
  int width = 0;  ///< bytes per token

  auto fields() { return std::tie(path, file_bytes, offset, tokens, width); }
};

/// The results of one rank's examination of a stream of files, for all ranks.
struct TokenFiles {
  std::vector<TokenFile> files;
  /// The hashes of all files' blocks (segment.hpp), in order: what was read once is what every rank
  /// must read.
  std::vector<std::uint64_t> sums;
  /// Where rows begin, with `data.rows: documents`.
  std::vector<std::int64_t> rows;
  /// That end_of_text begins, where they were to be counted.
  std::int64_t documents = 0;
  /// Of a cache that has the documents for validation at its end; -1: it has not.
  std::int64_t validation_tokens = -1;

  auto fields() { return std::tie(files, sums, rows, documents, validation_tokens); }
};

/// Requirements that the tokens must meet.
struct TokenRequirements {
  TokenFormat format = TokenFormat::automatic;
  std::int64_t vocabulary = 0;
  /// Not 0: the number of tokens of a row, for rows of documents.
  std::int64_t row_context = 0;
  /// Documents are counted: every end_of_text begins one.
  bool counts_documents = false;
  /// What begins a document, where the files themselves have no marks.
  std::optional<std::int32_t> end_of_text = {};
  /// Of the tokenizer that the run has; 0: not known. Compared with what the manifest of
  /// `trireme tokenize` states, if there is one next to the files.
  std::uint64_t tokenizer = 0;
  /// Called after each block with the bytes that were read and those of all files.
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};
};

/// Examines the files in the given order and reads every token once. Throws UserError with a
/// finding for every file that is not what it should be: of another format or size, with a token at
/// or above the vocabulary, other content than the manifest next to it states; StorageError for one
/// that cannot be read.
TokenFiles check_token_files(const std::vector<std::string>& paths,
                             const TokenRequirements& requirements);

/// The stream. Its read() throws when it finds a token at or above `vocabulary`.
std::unique_ptr<TokenStream> open_token_files(const TokenFiles& found, std::int64_t vocabulary);

/// Where rows begin in another stream: every `end_of_text` begins a document.
std::vector<std::int64_t> rows_of_stream(const TokenStream& stream,
                                         std::int64_t context,
                                         std::int32_t end_of_text);

}  // namespace trireme::tokens

template <>
struct trireme::EnumNames<trireme::tokens::TokenFormat> {
  using enum tokens::TokenFormat;
  static constexpr std::pair<tokens::TokenFormat, const char*> table[] = {
      {automatic, "auto"}, {uint16, "uint16"}, {uint32, "uint32"}};
};
