// SPDX-License-Identifier: Apache-2.0
// A run's tokenizer as the files that lie beside a model elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "files/new_directory.hpp"

namespace trireme::weights {

/// tokenizer.json, vocab.json, merges.txt and tokenizer_config.json. `serialized` is
/// text::Tokenizer::serialized(), `context` the longest text. Throws UserError for a vocabulary
/// that has no list of merges and can be given none.
void write_huggingface_tokenizer(const files::NewDirectory& directory,
                                 const std::string& serialized,
                                 std::int64_t context);

/// gpt2_tokenizer.bin, which llm.c's programs print tokens with, and tokenizer.json, which holds
/// the rest. Returns why the former was left out, or "".
std::string write_llmc_tokenizer(const files::NewDirectory& directory,
                                 const std::string& serialized);

}  // namespace trireme::weights
