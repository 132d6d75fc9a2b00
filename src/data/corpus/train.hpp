// SPDX-License-Identifier: Apache-2.0
// A byte-pair vocabulary, trained on counted pieces.
//
// The algorithm. Every piece begins as the tokens of its bytes; ids 0 ... 255 are the bytes in
// GPT-2's order. The count of a pair of ids is the number of places in all pieces where the two are
// neighbours (overlapping ones too: aaa has aa twice), each piece times its own count. Then, until
// the vocabulary is full or no pair is left: the pair with the largest count becomes the next id;
// of equal counts the lexicographically smaller pair of ids. It is merged in every piece from left
// to right, without overlap, and the counts are those of the merged pieces. A pair whose bytes are
// a token already is passed over (- ---- and ---- - are one token, not two). So merge k is always
// id 256 + k. Special tokens follow after the last merge.
//
// The result is a function of the pieces and counts alone, in whatever order they come.
//
// Source: R. Sennrich, B. Haddow, A. Birch 2016, "Neural machine translation of rare words with
// subword units", sec. 3.2. Ids and ties are those of the trainer of Hugging Face's tokenizers,
// which gives the same merges up to the first pair whose bytes are a token already.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "corpus/count_texts.hpp"
#include "text/vocabulary.hpp"

namespace trireme::corpus {

/// Least and most ids of a vocabulary that is trained, special tokens included.
inline constexpr std::int64_t least_vocabulary = 257;
inline constexpr std::int64_t most_vocabulary = std::int64_t{1} << 22U;

/// The special token of a vocabulary that is trained.
inline constexpr const char* end_of_text_name = "<|endoftext|>";

struct TrainRequest {
  text::Pattern pattern = text::Pattern::gpt2;
  std::int64_t vocabulary = 32768;  ///< ids, special tokens included
  std::vector<std::string> special_tokens{end_of_text_name};
  StageProgress* progress = nullptr;  ///< null: nothing is said
};

/// The vocabulary has fewer ids than asked for when no pair is left. Requires: room for the bytes
/// and the special tokens, which differ.
text::Vocabulary train_vocabulary(const std::vector<CountedPiece>& pieces,
                                  const TrainRequest& request);

/// What a vocabulary was trained on, as JSON: pattern, version of Unicode, sizes, what was dropped.
std::string training_json(const text::Vocabulary& vocabulary, const CountedCorpus& corpus);

/// Of a text that is made of these pieces.
double bytes_per_token(const text::Vocabulary& vocabulary, const std::vector<CountedPiece>& pieces);

/// Makes `directory` with tokenizer.json, vocab.json, merges.txt and training.json, which holds
/// `facts` (a JSON text). They are written aside and synchronized first, so there is either all of
/// the directory or none of it. Requires: listed merges. Throws UserError, StorageError.
void write_tokenizer(const std::string& directory,
                     const text::Vocabulary& vocabulary,
                     const std::string& facts);

}  // namespace trireme::corpus
