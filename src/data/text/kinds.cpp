// SPDX-License-Identifier: Apache-2.0
// Makes tokenizers of files, by their names, of serialized text, by how it begins, and of bytes.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "text/json_file.hpp"
#include "text/readers.hpp"

namespace trireme::text {
namespace {

namespace fs = std::filesystem;

class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t vocabulary() const override { return 256; }
  std::optional<Token> end_of_text() const override { return std::nullopt; }
  std::string kind() const override { return "bytes"; }
  std::uint64_t hash() const override { return hash_bytes(serialized_bytes); }
  std::string serialized() const override { return std::string(serialized_bytes); }

  void encode(std::string_view text, std::vector<Token>& out) const override {
    out.reserve(out.size() + text.size());
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  void decode(std::span<const Token> tokens, std::string& out) const override {
    out.reserve(out.size() + tokens.size());
    for (const Token token : tokens) {
      TRIREME_EXPECT(token >= 0 && token < 256, "token {} of 256", token);
      out.push_back(static_cast<char>(token));
    }
  }
  std::int32_t bytes_of(Token token) const override {
    TRIREME_EXPECT(token >= 0 && token < 256, "token {} of 256", token);
    return 1;
  }
};

std::optional<Companion> companion_of(const FileText& file) {
  const std::string path = file.path + ".json";
  return fs::exists(path) ? std::optional(read_companion(read_bounded(path))) : std::nullopt;
}

Vocabulary read_pair(const FileText& vocab) {
  for (const char* name : {"merges.txt", "vocab.bpe"})
    if (const fs::path merges = fs::path(vocab.path).parent_path() / name; fs::exists(merges))
      return read_vocab_and_merges(vocab, read_bounded(merges.string()));
  throw UserError(
      {vocab.path},
      "there is no merges.txt next to this vocabulary. Put the file of its merges there");
}

Vocabulary read_model_file(const FileText& file) {
  // The first byte of a message with pieces is that of a line break.
  return file.bytes.starts_with('\n') ? read_sentencepiece(file)
                                      : read_tiktoken(file, companion_of(file));
}

Vocabulary read_bin(const FileText& file) {
  return read_llmc_tokenizer(file, companion_of(file));
}

/// A special token of tokenizer_config.json: `value` is its name or an object with the name.
std::optional<Token> token_of(const Vocabulary& vocabulary, const Json& value) {
  const Json& name = value.is_object() ? member(value, "content") : value;
  return name.is_string() && name != "" ? special_named(vocabulary, name.get<std::string>())
                                        : std::nullopt;
}

/// add_bos_token and the token decide what begins a text, and eos_token is its usual end.
void read_roles(Vocabulary& vocabulary, const fs::path& directory) {
  const std::string path = (directory / "tokenizer_config.json").string();
  if (!fs::exists(path))
    return;
  const Json config = parse_json(read_bounded(path));
  if (!config.is_object())
    throw UserError({path}, "expected an object {...}");
  const auto begin = token_of(vocabulary, member(config, "bos_token"));
  if (member(config, "add_bos_token") == false)
    vocabulary.begin_of_text.reset();
  else if (begin && (vocabulary.begin_of_text || member(config, "add_bos_token") == true))
    vocabulary.end_of_text = vocabulary.begin_of_text = begin;
  const auto end = token_of(vocabulary, member(config, "eos_token"));
  std::vector<Token> ends = find_ends_of_text(vocabulary);
  if (end && (ends.empty() || ends.front() != *end)) {
    std::erase(ends, *end);
    ends.insert(ends.begin(), *end);
    vocabulary.ends_of_text = std::move(ends);
  }
}

/// What reads a file of this name; nullptr: nothing.
Vocabulary (*reader_of(const fs::path& file))(const FileText&) {
  // Mistral numbers its files: tokenizer.model.v3.
  const fs::path name = file.stem().extension() == ".model" ? file.stem() : file.filename();
  const fs::path ending = name.extension();
  return name == "vocab.json" || name == "encoder.json" ? read_pair
         : ending == ".json"                            ? read_tokenizer_json
         : ending == ".tiktoken" || ending == ".model"  ? read_model_file
         : ending == ".bin"                             ? read_bin
                                                        : nullptr;
}

/// The file of a directory that a tokenizer is read from.
fs::path file_in(const fs::path& directory) {
  std::error_code problem;
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json", "tokenizer.model"})
    if (fs::exists(directory / name, problem))
      return directory / name;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory, problem))
    if (entry.path().extension() != ".json" && reader_of(entry.path()) != nullptr)
      found.push_back(entry.path());
  if (problem)
    throw UserError({directory.string()}, std::strerror(problem.value()));
  std::ranges::sort(found);
  if (found.size() == 1)
    return found.front();
  if (found.empty())
    throw UserError({directory.string()},
                    "no tokenizer in this directory: neither tokenizer.json, nor vocab.json with "
                    "merges.txt, nor one file *.tiktoken, *.model or *.bin");
  throw UserError(
      {directory.string()},
      fmt::format("several tokenizers in this directory, {} and {} among them: name one",
                  found[0].filename().string(), found[1].filename().string()));
}

}  // namespace

std::shared_ptr<const Tokenizer> byte_tokenizer() {
  static const auto only = std::make_shared<const ByteTokenizer>();
  return only;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& file_or_directory) {
  std::error_code ignored;  // read_bounded() says why the path cannot be read
  const fs::path file =
      fs::is_directory(file_or_directory, ignored) ? file_in(file_or_directory) : file_or_directory;
  const FileText text = read_bounded(file.string());
  const auto read = reader_of(file);
  if (read == nullptr)
    throw UserError({file.string()},
                    "a tokenizer file must be named *.json, *.tiktoken, *.model or *.bin");
  if (text.bytes.empty())
    throw UserError({file.string()}, "the file is empty");
  Vocabulary vocabulary = read(text);
  read_roles(vocabulary, file.parent_path());
  return make_tokenizer(std::move(vocabulary), file.string());
}

std::shared_ptr<const Tokenizer> tokenizer_from(std::string_view serialized) {
  return serialized == serialized_bytes
             ? byte_tokenizer()
             : make_tokenizer(vocabulary_from(serialized), "serialized tokenizer");
}

}  // namespace trireme::text
