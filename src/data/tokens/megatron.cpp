// SPDX-License-Identifier: Apache-2.0
// The index of Megatron's token files: X.idx next to X.bin, little-endian.
//
//     "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64 documents,
//     i32 length of each sequence, i64 place of each sequence in X.bin (bytes),
//     i64 the first sequence of each document (`documents` entries; the last is `sequences`),
//     then, in some files, i8 mode of each sequence
//
// Source: NVIDIA/Megatron-LM megatron/core/datasets/indexed_dataset.py.
#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "files/descriptor.hpp"

#include "tokens/token_files.hpp"

namespace trireme::tokens {
namespace {

struct [[gnu::packed]] Header {
  std::array<char, 9> magic;
  std::uint64_t version;
  std::uint8_t type;
  std::int64_t sequences, documents;
};
constexpr std::int64_t header_bytes = sizeof(Header);
static_assert(header_bytes == 34);
constexpr std::array<char, 9> index_file_magic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};

/// Bytes per token of a type that tokens have; 0: another one.
int width_of_type(int type) {
  switch (type) {
    case 1:  // uint8
      return 1;
    case 8:  // uint16
      return 2;
    case 4:  // int32; a negative one is beyond every vocabulary
      return 4;
    default:
      return 0;
  }
}

/// Numbers of an array in the file, a buffer at a time.
template <class T, class Take>
void for_each(const files::InputFile& file, std::int64_t offset, std::int64_t count, Take&& take) {
  std::vector<T> buffer(static_cast<std::size_t>(std::min<std::int64_t>(count, 1 << 16)));
  for (std::int64_t at = 0; at < count; at += std::ssize(buffer)) {
    const auto part = std::span(buffer).first(
        static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(buffer), count - at)));
    file.read(offset + at * std::int64_t{sizeof(T)}, std::as_writable_bytes(part));
    for (const T value : part) take(value);
  }
}

/// The lengths' running sums must be the places. "" or what is wrong.
std::string check_sequences(const files::InputFile& file,
                            std::int64_t sequences,
                            const TokenFile& tokens,
                            std::vector<std::int64_t>& begins) {
  std::string problem;
  std::int64_t sum = 0;
  begins.reserve(static_cast<std::size_t>(sequences) + 1);
  for_each<std::int32_t>(file, header_bytes, sequences, [&](std::int32_t length) {
    if (length < 0 && problem.empty())
      problem = fmt::format("says that sequence {} has {} tokens", begins.size(), length);
    begins.push_back(sum);
    sum += std::max(length, 0);
  });
  begins.push_back(sum);
  if (!problem.empty())
    return problem;
  if (sum != tokens.file_bytes / tokens.width || tokens.file_bytes % tokens.width != 0)
    return fmt::format(
        "says {} tokens of {} bytes, but its .bin file has {} bytes: one of "
        "the two is truncated, or they do not belong together",
        sum, tokens.width, tokens.file_bytes);
  std::size_t sequence = 0;
  for_each<std::int64_t>(file, header_bytes + 4 * sequences, sequences, [&](std::int64_t place) {
    if (place != begins[sequence] * tokens.width && problem.empty())
      problem = fmt::format(
          "says that sequence {} begins at byte {}, and those before it end at "
          "byte {}: only files without holes are read",
          sequence, place, begins[sequence] * tokens.width);
    ++sequence;
  });
  return problem;
}

}  // namespace

std::string examine_megatron(const std::string& index_path, ExaminedFile& made) {
  const files::InputFile file(index_path);
  Header header{};
  if (file.read_some(0, std::as_writable_bytes(std::span(&header, 1))) < sizeof header)
    return fmt::format("is not an index of Megatron: {} bytes, its header alone takes {}",
                       file.size(), header_bytes);
  if (header.magic != index_file_magic)
    return "is not an index of Megatron: it does not begin with MMIDIDX";
  const std::uint64_t version = header.version;
  const int type = header.type;
  const std::int64_t sequences = header.sequences, documents = header.documents;
  if (version != 1)
    return fmt::format("is an index of version {}, this program reads version 1", version);
  made.file.width = width_of_type(type);
  if (made.file.width == 0)
    return fmt::format(
        "says tokens of type {}; those of types 1 (uint8), 4 (int32) and 8 (uint16) can be read",
        type);
  // Compared with the size before anything is multiplied that might not fit.
  if (sequences < 1 || documents < 1 || sequences > file.size() / 12 || documents > file.size() / 8)
    return fmt::format("says {} sequences and {} documents, and has {} bytes", sequences, documents,
                       file.size());
  const std::int64_t wanted = header_bytes + 12 * sequences + 8 * documents;
  if (file.size() != wanted && file.size() != wanted + sequences)
    return fmt::format("is {}: {} bytes where its header says {}",
                       file.size() < wanted ? "truncated" : "of another size", file.size(), wanted);
  std::vector<std::int64_t> begins;
  if (auto problem = check_sequences(file, sequences, made.file, begins); !problem.empty())
    return problem;
  std::string problem;
  std::int64_t last = 0, entry = 0;
  for_each<std::int64_t>(
      file, header_bytes + 12 * sequences, documents, [&](std::int64_t sequence) {
        if (sequence < last || sequence > sequences) {
          if (problem.empty())
            problem = fmt::format("says that document {} begins with sequence {} of {}", entry,
                                  sequence, sequences);
        } else if (sequence < sequences && problem.empty() &&
                   (entry == 0 || sequence != last || made.documents.empty())) {
          made.documents.push_back(begins[static_cast<std::size_t>(sequence)]);
        }
        last = std::max(last, sequence);
        ++entry;
      });
  made.file.tokens = begins.back();
  return problem;
}

}  // namespace trireme::tokens
