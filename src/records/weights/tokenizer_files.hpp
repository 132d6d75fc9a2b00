// SPDX-License-Identifier: Apache-2.0
// Writes a run's tokenizer as the files that other programs expect next to a model.
#pragma once

#include <cstdint>
#include <string>

#include "files/new_directory.hpp"

#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json. `serialized` is
/// text::Tokenizer::serialized(), `context` the maximum length of a text in tokens. Throws
/// UserError for a vocabulary without a list of merges for which none can be computed.
void write_huggingface_tokenizer(const files::NewDirectory& directory,
                                 const std::string& serialized,
                                 std::int64_t context,
                                 const Roles& roles);

/// Writes gpt2_tokenizer.bin, which llm.c's programs use to print tokens, and tokenizer.json with
/// the complete tokenizer. Returns why gpt2_tokenizer.bin was not written, or "".
std::string write_llmc_tokenizer(const files::NewDirectory& directory,
                                 const std::string& serialized);

}  // namespace trireme::weights
