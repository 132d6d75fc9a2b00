// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/packing.hpp"
#include "files/path.hpp"

#include "comm/control/together.hpp"

#include "tokens/manifest.hpp"
#include "tokens/rows.hpp"
#include "tokens/sources.hpp"
#include "tokens/token_files.hpp"
#include "tokens/token_index.hpp"

namespace trireme::tokens {
namespace {

/// What one rank reads at a time.
constexpr std::int64_t part_blocks = (std::int64_t{256} << 20U) / block_bytes;

/// Blocks [begin, end) of a file without an index.
struct Part {
  std::size_t number = 0;  ///< of the file
  TokenFile file;
  std::int64_t begin = 0, end = 0;

  auto fields() { return std::tie(number, file, begin, end); }
};

/// The number of each part that a rank has read, and its index.
using Read = std::vector<std::pair<std::size_t, TokenIndex>>;

/// Where a file of another program has its index.
std::string remembered_at(const std::string& directory, const std::string& path) {
  const std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  return (std::filesystem::path(directory) /
          fmt::format("tokens-{:016x}.index", hash_bytes(absolute)))
      .string();
}

/// One rank's parts of all that must be read.
Read read_parts(const std::vector<Part>& parts,
                const TokenRequirements& requirements,
                const comm::World& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto first = static_cast<std::size_t>(world.rank());
  std::int64_t done = 0, all = 0;
  for (std::size_t i = first; i < parts.size(); i += ranks)
    all += (parts[i].end - parts[i].begin) * block_bytes;
  Read read;
  for (std::size_t i = first; i < parts.size(); i += ranks)
    read.emplace_back(
        i, index_blocks(parts[i].file, parts[i].begin, parts[i].end,
                        requirements.end_of_text.value_or(no_end_of_text), [&](std::int64_t bytes) {
                          done += bytes;
                          if (requirements.progress && world.rank() == 0)
                            requirements.progress(done, all);
                        }));
  return read;
}

/// Rank 0's knowledge of the files.
class Checker {
 public:
  Checker(std::vector<ExaminedFile> files, const TokenRequirements& requirements)
      : requirements_(requirements), files_(std::move(files)), known_(files_.size()) {}

  /// Finds indexes. Returns what must be read for want of one.
  std::vector<Part> unread() {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      TokenFile& file = files_[i].file;
      known_[i].identity = identity_of(file.path);
      find_index(file, known_[i]);
      const std::int64_t blocks = file.num_blocks();
      for (std::int64_t begin = 0; file.index.empty() && begin < blocks; begin += part_blocks)
        parts.push_back({i, file, begin, std::min(blocks, begin + part_blocks)});
    }
    return parts;
  }
  /// Takes the indexes of the parts, in order, and remembers them.
  void take(const std::vector<Part>& parts, const std::vector<TokenIndex>& indexes) {
    for (std::size_t i = 0; i < parts.size(); ++i) known_[parts[i].number].index.append(indexes[i]);
    for (std::size_t i = 0; i < files_.size(); ++i)
      if (files_[i].file.index.empty())
        remember(files_[i].file, known_[i]);
  }
  /// Throws UserError for tokens that are not what they should be.
  TokenFiles finish() {
    Findings found;
    TokenFiles made;
    std::vector<std::int64_t> documents;  // for rows
    std::int64_t tokens = 0;
    for (const Known& known : known_) made.documents += known.header.documents;
    const bool marks =
        requirements_.marks_documents && requirements_.end_of_text && made.documents == 0 &&
        std::ranges::none_of(files_, [](const auto& file) { return file.documents.empty(); });
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const ExaminedFile& examined = files_[i];
      if (auto problem = problem_of(examined, known_[i].header); !problem.empty())
        found.add({examined.file.path}, "", std::move(problem));
      if (marks)
        for (const std::int64_t document : examined.documents)
          made.marks.push_back(tokens + document);
      else if (requirements_.row_context > 0)
        for (const std::int64_t document : documents_of(i)) documents.push_back(tokens + document);
      tokens += examined.file.tokens;
      made.files.push_back(examined.file);
    }
    found.settle();
    const std::int64_t marked = std::ssize(made.marks);
    made.documents += marked;
    for (std::int64_t i = 0; i < marked; ++i)
      documents.push_back(made.marks[static_cast<std::size_t>(i)] + i);
    if (requirements_.row_context > 0)
      made.rows = row_starts(documents, requirements_.row_context, tokens + marked);
    return made;
  }

 private:
  struct Known {
    FileIdentity identity;
    IndexHeader header;
    TokenIndex index;  ///< empty where the file has one
  };

  [[nodiscard]] bool fits(const IndexHeader& header, const TokenFile& file) const {
    return header.tokens == file.tokens && std::cmp_equal(header.width, file.width) &&
           (!requirements_.end_of_text || header.end_of_text == *requirements_.end_of_text);
  }
  void find_index(TokenFile& file, Known& known) {
    const auto use = [&](const std::string& path, bool remembered) {
      const auto header = read_index_header(path);
      if (!header || !fits(*header, file) || (remembered && header->identity != known.identity))
        return;
      known.header = *header;
      file.index = path;
      file.hash = header->hash;
    };
    if (manifests_.of(file.path) != nullptr)
      use(index_of_shard(file.path), false);
    if (file.index.empty() && !requirements_.index_directory.empty())
      use(remembered_at(requirements_.index_directory, file.path), true);
  }
  void remember(TokenFile& file, Known& known) const {
    const auto end_of_text = requirements_.end_of_text.value_or(no_end_of_text);
    known.header = header_of(file, known.index, end_of_text, known.identity);
    file.hash = known.header.hash;
    if (requirements_.index_directory.empty())
      return;
    files::make_directories(requirements_.index_directory);
    file.index = remembered_at(requirements_.index_directory, file.path);
    write_index(file.index, known.header, known.index);
  }

  [[nodiscard]] std::string problem_of(const ExaminedFile& examined, const IndexHeader& header) {
    const TokenFile& file = examined.file;
    // A negative number is one of the upper half of the unsigned ones.
    const std::int64_t bound = examined.is_signed
                                   ? std::min(requirements_.vocabulary,
                                              std::int64_t{1} << std::min(8 * file.width - 1, 62))
                                   : requirements_.vocabulary;
    if (!std::cmp_less(header.highest, bound)) {
      const auto unused = static_cast<unsigned>(64 - 8 * file.width);
      const auto as_signed = static_cast<std::int64_t>(header.highest << unused) >> unused;
      return fmt::format(
          "token {} is {}, model.vocabulary is {} (byte {} of the file): these tokens are another "
          "tokenizer's{}",
          header.highest_at,
          examined.is_signed ? std::to_string(as_signed) : std::to_string(header.highest),
          requirements_.vocabulary, file.offset + header.highest_at * file.width,
          examined.is_signed && as_signed < 0 ? "" : ", or model.vocabulary is too small");
    }
    return manifests_.problem(file.path, file.tokens, header.hash, requirements_.tokenizer);
  }
  [[nodiscard]] std::vector<std::int64_t> documents_of(std::size_t i) const {
    if (!files_[i].documents.empty())
      return files_[i].documents;
    return known_[i].index.blocks.empty() ? read_documents(files_[i].file.index)
                                          : known_[i].index.documents;
  }

  const TokenRequirements& requirements_;
  std::vector<ExaminedFile> files_;
  std::vector<Known> known_;
  Manifests manifests_;
};

}  // namespace

TokenFiles check_token_files(const std::vector<std::string>& entries,
                             const std::string& key,
                             const TokenRequirements& requirements,
                             comm::World& world) {
  std::optional<Checker> checker;
  const auto parts = comm::from_first_rank(world, [&] {
    checker.emplace(examine_token_files(find_shards(entries, key), requirements.format),
                    requirements);
    return checker->unread();
  });
  std::string mine;
  comm::together(world, [&] { mine = pack(read_parts(parts, requirements, world)); });
  const auto all = world.gather(mine);
  return comm::from_first_rank(world, [&] {
    std::vector<TokenIndex> indexes(parts.size());
    for (const std::string& of_rank : all)
      for (auto& [part, index] : unpack<Read>(of_rank)) indexes[part] = std::move(index);
    checker->take(parts, indexes);
    return checker->finish();
  });
}

}  // namespace trireme::tokens
