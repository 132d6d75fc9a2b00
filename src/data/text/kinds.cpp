// SPDX-License-Identifier: Apache-2.0
// The kinds of tokenizers, by how their serialized text begins, and the files that one can be read
// from, by their names: a new kind is its own file and, here, a declaration of what makes it and
// its rows.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

#include "text/json_file.hpp"
#include "text/readers.hpp"
#include "text/serialized.hpp"

namespace trireme::text {
namespace {

namespace fs = std::filesystem;

std::optional<Companion> companion_of(const fs::path& file) {
  const std::string path = file.string() + ".json";
  if (!fs::exists(path))
    return std::nullopt;
  const std::string bytes = read_bounded(path);
  return read_companion({path, bytes});
}

Vocabulary read_pair(const FileText& vocab) {
  for (const char* name : {"merges.txt", "vocab.bpe"})
    if (const fs::path merges = fs::path(vocab.path).parent_path() / name; fs::exists(merges)) {
      const std::string bytes = read_bounded(merges.string());
      return read_vocab_and_merges(vocab, {merges.string(), bytes});
    }
  throw UserError(
      {vocab.path},
      "there is no merges.txt next to this vocabulary. Put the file of its merges there");
}

/// What tokenizer_config.json next to a file says of special tokens: the name is in itself or in an
/// object.
std::optional<Token> token_of(const Vocabulary& vocabulary, const Json& value) {
  const Json& name = value.is_object() ? member(value, "content") : value;
  const auto found = std::ranges::find_if(vocabulary.tokens, [&](const VocabularyEntry& entry) {
    return entry.special && name == entry.bytes;
  });
  if (found == vocabulary.tokens.end())
    return std::nullopt;
  return static_cast<Token>(found - vocabulary.tokens.begin());
}

/// add_bos_token and the token decide what begins a text, and eos_token is its usual end.
void read_roles(Vocabulary& vocabulary, const fs::path& directory) {
  const std::string path = (directory / "tokenizer_config.json").string();
  if (!fs::exists(path))
    return;
  const std::string bytes = read_bounded(path);
  const Json config = parse_json(path, bytes);
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

std::shared_ptr<const Tokenizer> made_of(Vocabulary vocabulary, const FileText& file) {
  read_roles(vocabulary, fs::path(file.path).parent_path());
  return make_tokenizer(std::move(vocabulary), file.path);
}

/// The first of them that has a file's name reads it.
struct Format {
  /// Endings, which begin with '.', and whole names.
  std::array<std::string_view, 2> names;
  std::shared_ptr<const Tokenizer> (*read)(const FileText& file);

  [[nodiscard]] bool has(const fs::path& file) const {
    return std::ranges::any_of(names, [&](std::string_view name) {
      // Mistral numbers its files: tokenizer.model.v3.
      const fs::path plain = file.stem().extension() == ".model" ? file.stem() : file.filename();
      return !name.empty() &&
             (name.front() == '.' ? plain.extension() == name : plain.filename() == name);
    });
  }
};
constexpr Format formats[] = {
    {{"vocab.json", "encoder.json"},
     [](const FileText& file) { return made_of(read_pair(file), file); }},
    {{".json"}, [](const FileText& file) { return made_of(read_tokenizer_json(file), file); }},
    {{".tiktoken", ".model"},  // the first byte of a message with pieces is that of a line break
     [](const FileText& file) {
       return made_of(file.bytes.starts_with('\n') ? read_sentencepiece(file)
                                                   : read_tiktoken(file, companion_of(file.path)),
                      file);
     }},
    {{".bin"},
     [](const FileText& file) {
       return made_of(read_llmc_tokenizer(file, companion_of(file.path)), file);
     }},
};

/// nullptr: none has this name.
const Format* format_of(const fs::path& file) {
  const auto* const found =
      std::ranges::find_if(formats, [&](const Format& format) { return format.has(file); });
  return found != std::end(formats) ? found : nullptr;
}

constexpr std::string_view json_ending = ".json";

/// "*.json, *.tiktoken, *.model or *.bin"; of a directory without *.json, since only the names in
/// file_in() count there.
std::string endings(bool of_directory) {
  std::vector<std::string> all;
  for (const Format& format : formats)
    for (const std::string_view name : format.names)
      if (name.starts_with('.') && !(of_directory && name == json_ending))
        all.push_back(fmt::format("*{}", name));
  std::string text = all.front();
  for (std::size_t i = 1; i < all.size(); ++i)
    text += (i + 1 < all.size() ? ", " : " or ") + all[i];
  return text;
}

/// The file of a directory that a tokenizer is read from.
fs::path file_in(const fs::path& directory) {
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json", "tokenizer.model"})
    if (fs::exists(directory / name))
      return directory / name;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().extension() != json_ending && format_of(entry.path()) != nullptr)
      found.push_back(entry.path());
  std::ranges::sort(found);
  if (found.size() == 1)
    return found.front();
  if (found.empty())
    throw UserError({directory.string()},
                    fmt::format("no tokenizer in this directory: neither tokenizer.json, nor "
                                "vocab.json with merges.txt, nor one file {}",
                                endings(true)));
  throw UserError(
      {directory.string()},
      fmt::format("several tokenizers in this directory, {} and {} among them: name one",
                  found[0].filename().string(), found[1].filename().string()));
}

/// The kind whose header the text begins with makes a tokenizer of it.
struct Serialized {
  std::string_view header;
  std::shared_ptr<const Tokenizer> (*make)(std::string_view serialized);
};
constexpr Serialized kinds[] = {
    {serialized_bytes,
     [](std::string_view serialized) {
       if (serialized != serialized_bytes)
         throw UserError({"serialized tokenizer", 3, 1}, "text after the kind 'bytes'");
       return byte_tokenizer();
     }},
    {serialized_bpe,
     [](std::string_view serialized) {
       return make_tokenizer(vocabulary_from(serialized), "serialized tokenizer");
     }},
};

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& file_or_directory) {
  std::error_code ignored;
  if (!fs::exists(file_or_directory, ignored))
    throw UserError({file_or_directory.string()}, "no such file or directory");
  const fs::path file =
      fs::is_directory(file_or_directory) ? file_in(file_or_directory) : file_or_directory;
  const std::string bytes = read_bounded(file.string());
  if (const Format* format = format_of(file))
    return format->read({file.string(), bytes});
  throw UserError({file.string()},
                  fmt::format("a tokenizer file must be named {}", endings(false)));
}

std::shared_ptr<const Tokenizer> tokenizer_from(std::string_view serialized) {
  for (const Serialized& kind : kinds)
    if (serialized.starts_with(kind.header))
      return kind.make(serialized);
  throw UserError({"serialized tokenizer"}, "it was not written by this version of trireme");
}

}  // namespace trireme::text
