// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

#include "text/json_file.hpp"
#include "text/readers.hpp"

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

Vocabulary read_pair(const fs::path& vocab, std::string_view vocab_bytes) {
  for (const char* name : {"merges.txt", "vocab.bpe"})
    if (const fs::path merges = vocab.parent_path() / name; fs::exists(merges)) {
      const std::string bytes = read_bounded(merges.string());
      return read_vocab_and_merges({vocab.string(), vocab_bytes}, {merges.string(), bytes});
    }
  throw UserError({vocab.string()}, "a vocabulary without merges: merges.txt must lie beside it");
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& file_or_directory) {
  std::error_code ignored;
  if (!fs::exists(file_or_directory, ignored))
    throw UserError({file_or_directory.string()}, "no such file or directory");
  const fs::path file =
      fs::is_directory(file_or_directory) ? file_in(file_or_directory) : file_or_directory;
  const std::string bytes = read_bounded(file.string());
  const FileText text{file.string(), bytes};
  if (is_ranks(file))
    return make_tokenizer(read_tiktoken(text, companion_of(file)), text.path);
  if (file.extension() == ".bin")
    return make_tokenizer(read_llmc_tokenizer(text, companion_of(file)), text.path);
  if (file.extension() != ".json")
    throw UserError({text.path},
                    "the name of a tokenizer's file ends in .json, .tiktoken, .model or .bin");
  if (file.filename() == "vocab.json" || file.filename() == "encoder.json")
    return make_tokenizer(read_pair(file, bytes), text.path);
  return make_tokenizer(read_tokenizer_json(text), text.path);
}

}  // namespace trireme::text
