// SPDX-License-Identifier: Apache-2.0
// Files of tokens that other programs made. All numbers are little-endian.
//
//   llm.c      a header of 256 int32, then the tokens, nothing after them (dev/data/data_common.py
//              there). Header words: magic, version, number of tokens, zeros.
//                  magic 20240520, version 1: uint16 tokens (GPT-2's vocabulary)
//                  magic 20240801, version 7: uint32 tokens (Llama 3's)
//   Megatron   X.bin with nothing but tokens, and X.idx next to it: their type, and where sequences
//              and documents begin (megatron/core/datasets/indexed_dataset.py there)
//   NumPy      .npy arrays of integers
//   raw        nothing but tokens; the deck gives their width
//
// All but the last state the type of their tokens, and sizes must match exactly. Several files are
// one stream; documents may continue from one llm.c shard to the next.
//
// A file without an index (token_index.hpp) is read once, in parts by all ranks. One with an index
// is opened by its header, and its bytes are compared with their hashes when they are first used.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/key.hpp"

#include "comm/control/world.hpp"

#include "tokens/token_stream.hpp"

namespace trireme::tokens {

/// How files of tokens are laid out; automatic: as the files state it.
enum class TokenFormat : std::uint8_t { automatic, uint16, uint32 };

inline constexpr std::int64_t llmc_header_bytes = 1024;
inline constexpr std::int32_t llmc_magic_2 = 20240520, llmc_magic_4 = 20240801;  // by width

/// What is known of a stream of files, the same on all ranks.
struct TokenFiles {
  std::vector<TokenFile> files;
  std::vector<std::int64_t> rows;  ///< where rows begin, with `data.rows: documents`
  std::int64_t documents = 0;      ///< number of end_of_text, with those of `marks`
  /// Where documents begin in front of which end_of_text is to be put, because the files state
  /// documents and have no such token.
  std::vector<std::int64_t> marks;
  /// Of encoded text that has the documents for validation at its end; -1: it has not.
  std::int64_t validation_tokens = -1;

  auto fields() { return std::tie(files, rows, documents, marks, validation_tokens); }
};

/// Requirements that the tokens must meet.
struct TokenRequirements {
  TokenFormat format = TokenFormat::automatic;
  std::int64_t vocabulary = 0;
  std::int64_t row_context = 0;  ///< not 0: the number of tokens of a row, for rows of documents
  bool marks_documents = false;  ///< every document must begin with end_of_text
  /// What begins a document, where the files themselves have no marks.
  std::optional<std::int32_t> end_of_text = {};
  /// Of the tokenizer that the run has; 0: not known. Compared with what the manifest of
  /// `trireme tokenize` states, if there is one next to the files.
  std::uint64_t tokenizer = 0;
  /// Where indexes of files without one are written and found. Empty: nowhere, so such files are
  /// read at every call, and what is read later is not compared with anything.
  std::string index_directory = {};
  /// Called after each block on rank 0 with the bytes of its part that were read, and all of them.
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};
};

/// A token file that was examined by its header.
struct ExaminedFile {
  TokenFile file = {};
  std::vector<std::int64_t> documents = {};  ///< where they begin, if the file states that itself
  bool is_signed = false;                    ///< negative numbers are in the upper half
};

/// Examines an array of NumPy. "" when all is well, else what is wrong with it.
std::string examine_numpy(const files::InputFile& file, ExaminedFile& made);
/// Examines the index of Megatron of made.file, which has its path and size. The same. Throws
/// StorageError when the index cannot be read.
std::string examine_megatron(const std::string& index_path, ExaminedFile& made);

/// Reads headers. Throws UserError with a finding for every file that is not what it should be: of
/// another format or size; StorageError for one that cannot be read.
std::vector<ExaminedFile> examine_token_files(const std::vector<std::string>& paths,
                                              TokenFormat format);

/// Finds the files that `entries` name (sources.hpp), which `key` names in findings, and reads those
/// that have no index. Collective; the arguments are used on rank 0. Throws UserError as
/// find_shards() and examine_token_files() do, for a token at or above the vocabulary, and for other
/// content than the manifest next to the files states.
TokenFiles check_token_files(const std::vector<std::string>& entries,
                             const std::string& key,
                             const TokenRequirements& requirements,
                             comm::World& world);

/// The stream. Its read() throws when it finds a token at or above `vocabulary`. `end_of_text` is put
/// where `found` has marks.
std::unique_ptr<TokenStream> open_token_files(const TokenFiles& found,
                                              std::int64_t vocabulary,
                                              std::int32_t end_of_text = -1);

}  // namespace trireme::tokens
