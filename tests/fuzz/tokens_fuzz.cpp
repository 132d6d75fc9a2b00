// SPDX-License-Identifier: Apache-2.0
// A file of tokens or of text. The first byte selects one: the index of a token file, a shard of
// llm.c, Megatron's index, JSON lines, plain or compressed text, a manifest. It also selects
// whether an index gets a matching checksum, so that the code after that check is reached.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "comm/control/world.hpp"

#include "tokens/documents.hpp"
#include "tokens/manifest.hpp"
#include "tokens/token_files.hpp"
#include "tokens/token_index.hpp"

#include "fuzz.hpp"

namespace {

using namespace trireme;

/// Reads every token, in parts; all must be below the bound that the stream states.
void read_all(const tokens::TokenStream& stream, std::int64_t bound) {
  std::vector<std::int32_t> tokens(100);
  for (std::int64_t at = 0; at < stream.size(); at += 100) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(100, stream.size() - at));
    stream.read(at, std::span(tokens).first(count));
    for (std::size_t i = 0; i < count; ++i)
      fuzz::promise(tokens[i] >= 0 && tokens[i] < bound, "tokens are below the vocabulary");
  }
}

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Reads every document of a file at once and in ranges: the text must be the same.
void read_documents(const std::string& path, const std::string& field) {
  const tokens::TextFormat format(field);
  const auto all = [&](std::int64_t begin, std::int64_t end) {
    std::string text;
    tokens::Documents documents(path, format, begin, end);
    for (tokens::TextPiece piece; documents.next(piece);) text += piece.text;
    return text;
  };
  const std::string whole = all(0, -1);
  if (tokens::packing_of(path) != tokens::Packing::none)
    return;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path));
  const std::int64_t cut = tokens::boundary(path, format, size / 2);
  fuzz::promise(cut >= 0 && cut <= size, "a boundary lies in its file");
  fuzz::promise(all(0, cut) + all(cut, size) == whole, "ranges join to the whole");
}

tokens::TokenFiles check(const std::string& path, const tokens::TokenRequirements& requirements) {
  static const auto world = comm::make_self_world();
  return tokens::check_token_files({path}, "tokens", requirements, *world);
}

void read_index(std::uint8_t kind, std::string bytes, const std::string& directory) {
  const std::string path = directory + "/m.bin.index";
  if (kind == 1 && bytes.size() >= sizeof(tokens::IndexHeader)) {
    constexpr std::size_t at = offsetof(tokens::IndexHeader, checksum);
    const std::uint64_t sum = hash_bytes(std::string_view(bytes).substr(0, at));
    std::memcpy(bytes.data() + at, &sum, sizeof sum);
  }
  write(path, bytes);
  const auto header = tokens::read_index_header(path);
  if (!header)
    return;
  static_cast<void>(tokens::read_documents(path));
  static_cast<void>(tokens::read_block_hashes({.path = directory + "/m.bin",
                                               .file_bytes = 0,
                                               .tokens = header->tokens,
                                               .width = static_cast<int>(header->width),
                                               .index = path,
                                               .hash = header->hash}));
}

void read_tokens(std::uint8_t kind, std::string_view bytes, const std::string& directory) {
  const std::string path = directory + "/m.bin";
  write(path, bytes);
  const std::int64_t vocabulary = kind == 2 ? 50257 : std::int64_t{1} << 31;
  const auto found = check(path, {.vocabulary = vocabulary});
  read_all(*tokens::open_token_files(found, vocabulary), vocabulary);
}

/// The first 64 bytes are the tokens, the rest is the index.
void read_megatron(const std::string& bytes, const std::string& directory) {
  const std::size_t tokens = std::min<std::size_t>(bytes.size(), 64);
  write(directory + "/m.bin", std::string_view(bytes).substr(0, tokens));
  write(directory + "/m.idx", std::string_view(bytes).substr(tokens));
  const auto found = check(directory + "/m.bin", {.vocabulary = 1000, .row_context = 3});
  read_all(*tokens::open_token_files(found, 1000), 1000);
  for (const std::int64_t row : found.rows) fuzz::promise(row >= 0 && row + 3 < 64, "rows fit");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Directory directory;
  fuzz::Input input(data, size);
  const auto kind = input.take<std::uint8_t>();
  const std::string bytes(input.rest());
  const std::string text = directory.path + "/text";
  std::filesystem::remove(directory.path + "/m.idx");
  try {
    switch (kind) {
      case 0:
      case 1:
        read_index(kind, bytes, directory.path);
        break;
      case 4:
        read_megatron(bytes, directory.path);
        break;
      case 5:
        write(text, bytes);
        read_documents(text, "text");
        break;
      case 6:
      case 7:
      case 8:
        write(text, bytes);
        read_documents(text, "");
        break;
      case 9: {
        const auto manifest = tokens::manifest_from_json(bytes, "m.json");
        fuzz::promise(tokens::to_json(tokens::manifest_from_json(
                          tokens::to_json(manifest), "m.json")) == tokens::to_json(manifest),
                      "a manifest reads as it was written");
        break;
      }
      default:
        read_tokens(kind, bytes, directory.path);
    }
  } catch (const UserError&) {
  } catch (const StorageError&) {  // the bytes do not match their hashes
  }
  return 0;
}
