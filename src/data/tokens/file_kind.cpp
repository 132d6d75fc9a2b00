// SPDX-License-Identifier: Apache-2.0
#include "tokens/file_kind.hpp"

#include <algorithm>
#include <cstring>

namespace trireme::tokens {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view unpack_tokens = "Decompress it: token files are read where they are.";
constexpr std::string_view no_tokens =
    "`tokens` reads .bin files of llm.c and Megatron, .npy files, and raw numbers.";
constexpr std::string_view to_tokens = "Give files of tokens in `tokens` instead of `text`.";
constexpr std::string_view no_text = "Remove it, or name the text files with a glob.";
constexpr std::string_view parquet =
    "Write its text column as JSON lines, for example in Python: "
    "datasets.load_dataset(\"parquet\", data_files=FILE, split=\"train\").to_json(\"text.jsonl\"), "
    "and set `field`.";
constexpr std::string_view arrow =
    "Write its text column as JSON lines, for example in Python: datasets.load_dataset(\"arrow\", "
    "data_files=FILE, split=\"train\").to_json(\"text.jsonl\"), and set `field`.";
constexpr std::string_view unpack = "Unpack it and name the files that it contains.";
constexpr std::string_view utf8 = "Convert it: iconv -f UTF-16 -t UTF-8 FILE > OUTPUT.";

struct Row {
  std::size_t at;
  std::string_view magic;
  FileKind kind;
  std::string_view first = {};  ///< what the file begins with as well
};
constexpr Row table[] = {
    {0, "\x1f\x8b\x08"sv, {"gzip data", "", unpack_tokens, Packing::gzip}},
    {0, "\x28\xb5\x2f\xfd"sv, {"zstd data", "", unpack_tokens, Packing::zstd}},
    {0, "\x50\x2a\x4d\x18"sv, {"zstd data", "", unpack_tokens, Packing::zstd}},  // of pzstd
    {4, "\x31\x41\x59\x26\x53\x59"sv, {"bzip2 data", "", unpack_tokens, Packing::bzip2}, "BZh"},
    {4, "\x17\x72\x45\x38\x50\x90"sv, {"bzip2 data", "", unpack_tokens, Packing::bzip2}, "BZh"},
    {0, "\xfd\x37zXZ\0"sv, {"xz data", "", unpack_tokens, Packing::xz}},
    {0, numpy_magic, {"a NumPy array", to_tokens, ""}},
    {0, "\x88\xd8\x34\x01\x01\0\0\0"sv, {"a token file of llm.c", to_tokens, ""}},
    {0, "\xa1\xd9\x34\x01\x07\0\0\0"sv, {"a token file of llm.c", to_tokens, ""}},
    {0,
     "MMIDIDX\0\0"sv,
     {"an index of Megatron", to_tokens, "Name the .bin file; the .idx next to it is found."}},
    {0, "triremeT"sv, {"a token cache of trireme", no_text, "Use the text that it was made of."}},
    {0, "PAR1"sv, {"a Parquet file", parquet, parquet}},
    {0, "ARROW1\0\0"sv, {"an Arrow file", arrow, arrow}},
    {0, "\xff\xff\xff\xff"sv, {"an Arrow stream", arrow, arrow}},
    {0, "PK\x03\x04"sv, {"a zip archive", unpack, no_tokens}},
    {0, "PK\x05\x06"sv, {"a zip archive", unpack, no_tokens}},
    {257, "ustar"sv, {"a tar archive", unpack, no_tokens}},
    {0, "7z\xbc\xaf\x27\x1c"sv, {"a 7z archive", unpack, no_tokens}},
    {0, "\x04\x22\x4d\x18"sv, {"lz4 data", "Decompress it with lz4 -d.", unpack_tokens}},
    {0, "\x89HDF\r\n\x1a\n"sv, {"an HDF5 file", no_text, no_tokens}},
    {0, "%PDF-"sv, {"a PDF document", "Extract its text, for example with pdftotext.", no_tokens}},
    {0, "\xff\xfe"sv, {"text in UTF-16", utf8, no_tokens, Packing::none, true}},
    {0, "\xfe\xff"sv, {"text in UTF-16", utf8, no_tokens, Packing::none, true}},
};
constexpr FileKind safetensors{"a safetensors file", no_text, no_tokens};

/// A length of the header that is below 100 MiB, and the JSON object of that length.
bool is_safetensors(std::string_view front) {
  std::uint64_t length = 0;
  if (front.size() < sizeof length + 2)
    return false;
  std::memcpy(&length, front.data(), sizeof length);
  return length >= 2 && length < std::uint64_t{100} << 20U && front[sizeof length] == '{' &&
         (front[sizeof length + 1] == '"' || front[sizeof length + 1] == '}');
}

}  // namespace

const FileKind* kind_of(std::string_view front) {
  for (const Row& row : table)
    if (front.size() >= row.at && front.substr(row.at).starts_with(row.magic) &&
        front.starts_with(row.first))
      return &row.kind;
  return is_safetensors(front) ? &safetensors : nullptr;
}

bool is_binary(std::string_view front) {
  const auto control = std::ranges::count_if(front, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == 0x7F || (byte < 0x20 && (byte < 0x08 || (byte > 0x0D && byte != 0x1B)));
  });
  return 100 * control > std::ssize(front);
}

}  // namespace trireme::tokens
