// SPDX-License-Identifier: Apache-2.0
#include "weights/tokenizer_files.hpp"

#include <array>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"

#include "text/vocabulary.hpp"
#include "text/write.hpp"

namespace trireme::weights {
namespace {

constexpr std::int32_t llmc_tokenizer_magic = 20240328, llmc_tokenizer_version = 2;
/// The file stores the length of a token in one byte.
constexpr std::size_t most_llmc_bytes = 255;

/// Throws UserError for special tokens whose names are not UTF-8: JSON cannot store them.
text::Vocabulary vocabulary_of(const std::string& serialized) {
  text::Vocabulary vocabulary = text::listed_vocabulary(serialized);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& name = vocabulary.tokens[id].bytes;
    if (vocabulary.tokens[id].special && trireme::Json::parse(json_text(name)) != name)
      throw UserError(
          fmt::format("the name of special token {} of the tokenizer is not UTF-8, so the "
                      "tokenizer's files cannot be written",
                      id));
  }
  return vocabulary;
}

}  // namespace

void write_huggingface_tokenizer(const files::NewDirectory& directory,
                                 const std::string& serialized,
                                 std::int64_t context,
                                 const Roles& roles) {
  const text::Vocabulary vocabulary = vocabulary_of(serialized);
  directory.write("tokenizer.json", text::tokenizer_json(vocabulary));
  if (!vocabulary.characters) {  // GPT-2's pair is for tokens of bytes
    directory.write("vocab.json", text::vocab_json(vocabulary));
    directory.write("merges.txt", text::merges_txt(vocabulary));
  }
  trireme::Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                          {"clean_up_tokenization_spaces", false},
                          {"model_max_length", context}};
  const auto spell = [&](const char* key, text::Token token) {
    if (vocabulary.has_special(token))
      config[key] = vocabulary[token].bytes;
  };
  config["add_bos_token"] = vocabulary.begin_of_text.has_value();
  spell("bos_token", roles.begin.value_or(-1));
  spell("eos_token", roles.ends.empty() ? -1 : roles.ends.front());
  spell("pad_token", roles.padding.value_or(-1));
  directory.write("tokenizer_config.json", json_text(config, 2));
}

std::string write_llmc_tokenizer(const files::NewDirectory& directory,
                                 const std::string& serialized) {
  const text::Vocabulary vocabulary = vocabulary_of(serialized);
  directory.write("tokenizer.json", text::tokenizer_json(vocabulary));
  if (!vocabulary.end_of_text)
    return "gpt2_tokenizer.bin was not written: it needs an end-of-text token, which the tokenizer "
           "does not have";
  std::array<std::int32_t, 256> header{llmc_tokenizer_magic, llmc_tokenizer_version,
                                       static_cast<std::int32_t>(vocabulary.tokens.size()),
                                       *vocabulary.end_of_text};
  std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof header);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id].bytes;
    if (token.size() > most_llmc_bytes)
      return fmt::format(
          "gpt2_tokenizer.bin was not written: token {} has {} bytes, and the format allows {}", id,
          token.size(), most_llmc_bytes);
    bytes.push_back(static_cast<char>(token.size()));
    bytes += token;
  }
  directory.write("gpt2_tokenizer.bin", bytes);
  return "";
}

}  // namespace trireme::weights
