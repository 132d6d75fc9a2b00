// SPDX-License-Identifier: Apache-2.0
// The kinds of tokenizers, by how their serialized text begins, and the files that one can be read
// from, by their names: a new kind is its own file, a maker declared here, and its rows.
#include <algorithm>
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

bool is_ranks(const fs::path& file) {
  return file.extension() == ".tiktoken" || file.extension() == ".model";
}

/// The file of a directory that a tokenizer is read from.
fs::path file_in(const fs::path& directory) {
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json"})
    if (fs::exists(directory / name))
      return directory / name;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory))
    if (is_ranks(entry.path()) || entry.path().extension() == ".bin")
      found.push_back(entry.path());
  std::ranges::sort(found);
  if (found.size() == 1)
    return found.front();
  if (found.empty())
    throw UserError({directory.string()},
                    "no tokenizer in this directory: neither tokenizer.json, nor vocab.json with "
                    "merges.txt, nor a *.tiktoken, *.model or llm.c's *.bin");
  throw UserError(
      {directory.string()},
      fmt::format("several tokenizers in this directory, {} and {} among them: name one",
                  found[0].filename().string(), found[1].filename().string()));
}

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
  throw UserError({vocab.path}, "a vocabulary without merges: merges.txt must lie beside it");
}

std::shared_ptr<const Tokenizer> made_of(Vocabulary vocabulary, const FileText& file) {
  return make_tokenizer(std::move(vocabulary), file.path);
}

/// The first whose name matches reads the file.
struct Format {
  bool (*is)(const fs::path& file);
  std::shared_ptr<const Tokenizer> (*read)(const FileText& file);
};
constexpr Format formats[] = {
    {is_ranks,
     [](const FileText& file) {
       return made_of(read_tiktoken(file, companion_of(file.path)), file);
     }},
    {[](const fs::path& file) { return file.extension() == ".bin"; },
     [](const FileText& file) {
       return made_of(read_llmc_tokenizer(file, companion_of(file.path)), file);
     }},
    {[](const fs::path& file) {
       return file.filename() == "vocab.json" || file.filename() == "encoder.json";
     },
     [](const FileText& file) { return made_of(read_pair(file), file); }},
    {[](const fs::path& file) { return file.extension() == ".json"; },
     [](const FileText& file) { return made_of(read_tokenizer_json(file), file); }},
};

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
  for (const Format& format : formats)
    if (format.is(file))
      return format.read({file.string(), bytes});
  throw UserError({file.string()},
                  "the name of a tokenizer's file ends in .json, .tiktoken, .model or .bin");
}

std::shared_ptr<const Tokenizer> tokenizer_from(std::string_view serialized) {
  for (const Serialized& kind : kinds)
    if (serialized.starts_with(kind.header))
      return kind.make(serialized);
  throw UserError({"serialized tokenizer"},
                  "it does not begin as one that this version of trireme wrote");
}

}  // namespace trireme::text
