// SPDX-License-Identifier: Apache-2.0
// Writes a vocabulary as the files that other programs read.
#pragma once

#include <string>
#include <string_view>

#include "text/vocabulary.hpp"

namespace trireme::text {

/// The vocabulary of text::Tokenizer::serialized(), with its merges as a list. Bytes are 256 tokens
/// without merges. Where merges go by rank, each token is a merge of the two parts that lower ranks
/// make of it; throws UserError for a token that they make something else of. For ids that were
/// trained in the order of their merges, the two give the same tokens. Where they go by score, the
/// list is that of transformers: tokens of the same score may come out in another order.
Vocabulary listed_vocabulary(std::string_view serialized);

/// For Hugging Face's tokenizers, which give the same ids with it.
std::string tokenizer_json(const Vocabulary& vocabulary);
/// GPT-2's pair. They do not hold the pattern: readers take gpt2's.
std::string vocab_json(const Vocabulary& vocabulary);
std::string merges_txt(const Vocabulary& vocabulary);

}  // namespace trireme::text
