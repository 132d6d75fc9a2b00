// SPDX-License-Identifier: Apache-2.0
// Readers of the vocabulary files of other programs. Each reads the bytes of a file, with its path
// for messages, and throws a UserError that names the line, offset or key of a mistake.
//
// A file that needs an unsupported feature is refused with its key: its tokens would differ.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/json_file.hpp"
#include "text/vocabulary.hpp"

namespace trireme::text {

/// tokenizer.json of Hugging Face's tokenizers: a BPE model after ByteLevel, alone (pattern gpt2)
/// or after Digits or a Split by known expressions (pieces.hpp); or one with byte_fallback, after the
/// normalizers Prepend and Replace, or after Metaspace. Truncation and padding are ignored:
/// they do not concern a stream of documents. What a TemplateProcessing puts
/// before a text is end_of_text; without one it goes by name (find_end_of_text).
Vocabulary read_tokenizer_json(const FileText& file);

/// SentencePiece's *.model: type bpe with byte_fallback, without normalization.
Vocabulary read_sentencepiece(const FileText& file);

/// GPT-2's pair of files; the pattern is gpt2. Every token of two bytes or more must be made by a
/// merge; one that is not, and is spelled <...>, is a special token.
Vocabulary read_vocab_and_merges(const FileText& vocab, const FileText& merges);

/// What files that list tokens only do not hold: {"pattern": NAME, "special_tokens": {NAME: ID,
/// ...}}, in a file named like the other with ".json" at the end.
struct Companion {
  Pattern pattern = Pattern::gpt2;
  std::vector<std::pair<std::string, std::int64_t>> special_tokens;
  bool nfc = false;
};
Companion read_companion(const FileText& file);

/// Lines of base64(bytes), a space, and the rank, which is the id. Without a companion it must have
/// as many ranks as gpt2 (50256), p50k (50280), cl100k (100256), Llama 3 (128000), Qwen 2 and 3
/// (151643) or o200k (199998), whose pattern and special tokens it gets.
Vocabulary read_tiktoken(const FileText& file, const std::optional<Companion>& companion);

/// llm.c's tokenizer file: 256 int32 (magic 20240328, version 1 or 2, tokens, in version 2 the id
/// of the end of text), then for each token a byte with its length, and its bytes. Ids are ranks.
/// Without a companion it must have 50257 tokens: GPT-2's.
Vocabulary read_llmc_tokenizer(const FileText& file, const std::optional<Companion>& companion);

}  // namespace trireme::text
