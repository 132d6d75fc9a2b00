// SPDX-License-Identifier: Apache-2.0
#include "data/llmc_shards.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include <sys/resource.h>

#include "base/error.hpp"

#include "data/hash.hpp"

namespace trireme::data {

namespace {

constexpr std::int64_t header_bytes = 256 * sizeof(std::int32_t);
/// For everything else that a rank has open.
constexpr std::size_t spare_files = 256;

/// The text of the finding, or nothing when `segment` now is the shard.
std::string examine(InputFile file, Segment& segment) {
  const std::int64_t size = file.size();
  if (size < header_bytes)
    return fmt::format("is no token shard: {} bytes, its header alone takes {}", size,
                       header_bytes);
  std::array<std::int32_t, 3> header{};
  file.read(0, std::as_writable_bytes(std::span(header)));
  const auto [magic, version, tokens] = header;
  if (magic != 20240520 && magic != 20240801)
    return fmt::format("is no token shard of llm.c: it starts with {}, not 20240520 or 20240801",
                       magic);
  const std::int32_t known = magic == 20240520 ? 1 : 7;
  if (version != known)
    return fmt::format("is a token shard of version {}, this program reads version {}", version,
                       known);
  const int token_bytes = magic == 20240520 ? 2 : 4;
  const std::int64_t wanted = header_bytes + std::int64_t{tokens} * token_bytes;
  if (tokens < 1)
    return fmt::format("is a token shard of {} tokens", tokens);
  if (size != wanted)
    return fmt::format("token shard is {}: {} bytes where its header says {}",
                       size < wanted ? "truncated" : "too long", size, wanted);
  segment = Segment(std::move(file), header_bytes, token_bytes, tokens);
  return {};
}

/// Every shard stays open, and many systems allow 1024 files unless they are asked for more.
void allow_open_files(std::size_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + spare_files)
    return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count + spare_files);
  static_cast<void>(
      ::setrlimit(RLIMIT_NOFILE, &limit));  // else opening says which file is too many
}

std::vector<Segment> open_segments(const std::vector<std::string>& paths) {
  allow_open_files(paths.size());
  std::vector<Segment> segments;
  std::vector<Diagnostic> found;
  for (const auto& path : paths) {
    Segment segment;
    if (auto text = examine(InputFile(path), segment); !text.empty())
      found.push_back({{path}, "", std::move(text)});
    segments.push_back(std::move(segment));
  }
  if (!found.empty())
    throw UserError(std::move(found));
  return segments;
}

/// The place and value of the first token at or above `vocabulary` in a block, or nothing.
template <class Token>
std::optional<std::pair<std::int64_t, Token>> first_outside(std::span<const std::byte> bytes,
                                                            std::int64_t vocabulary) {
  const std::size_t count = bytes.size() / sizeof(Token);
  const auto token = [&](std::size_t i) {
    Token value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
  };
  Token highest = 0;
  for (std::size_t i = 0; i < count; ++i) highest = std::max(highest, token(i));
  if (highest < vocabulary)
    return std::nullopt;
  std::size_t i = 0;
  while (token(i) < vocabulary) ++i;
  return std::pair(static_cast<std::int64_t>(i), token(i));
}

/// Reads the shard once: its hashes are added to `sums`.
std::optional<Diagnostic> check_shard(const Segment& segment,
                                      std::int64_t vocabulary,
                                      ShardSums& sums) {
  std::optional<Diagnostic> found;
  const auto report = [&](std::int64_t block, const auto& outside) {
    if (outside && !found)
      found = Diagnostic{{segment.file().path()},
                         "",
                         fmt::format("token {} is {}, model.vocabulary is {}",
                                     block * (block_bytes / segment.token_bytes()) + outside->first,
                                     outside->second, vocabulary)};
  };
  BlockHashes hashes;
  std::vector<std::byte> room(static_cast<std::size_t>(block_bytes));
  for (std::int64_t block = 0; block < segment.num_blocks() && !found; ++block) {
    const auto bytes = segment.read_block(block, room);
    hashes.add(bytes);
    if (segment.token_bytes() == 2)
      report(block, first_outside<std::uint16_t>(bytes, vocabulary));
    else
      report(block, first_outside<std::uint32_t>(bytes, vocabulary));
  }
  const auto made = hashes.finish();
  sums.insert(sums.end(), made.begin(), made.end());
  return found;
}

}  // namespace

std::unique_ptr<TokenStream> open_shards(const std::vector<std::string>& paths,
                                         std::int64_t vocabulary,
                                         const ShardSums& sums) {
  auto segments = open_segments(paths);
  std::int64_t tokens = 0, highest = 0;
  std::span<const std::uint64_t> rest(sums);
  Hash hash;
  for (Segment& segment : segments) {
    const auto blocks = std::min(rest.size(), static_cast<std::size_t>(segment.num_blocks()));
    const auto own = rest.first(blocks);
    rest = rest.subspan(blocks);
    segment.expect({own.begin(), own.end()});
    hash.add(static_cast<std::uint64_t>(segment.token_bytes()))
        .add(hash_of_blocks(own, segment.bytes()));
    tokens += segment.tokens();
    highest = std::max(highest, std::int64_t{1} << (8 * segment.token_bytes()));
  }
  if (!rest.empty())
    throw StorageError("data", "open " + std::to_string(paths.size()) + " shards",
                       fmt::format("{} blocks of tokens fewer than a moment ago: they were changed "
                                   "while the run started",
                                   rest.size()),
                       __FILE__, __LINE__);
  auto description = fmt::format("{} tokens in {} shards, {}", tokens, paths.size(),
                                 paths.empty() ? "none" : paths.front());
  return std::make_unique<FileTokens>(std::move(segments), std::min(vocabulary, highest),
                                      hash.value(), std::move(description));
}

ShardSums check_shards(const std::vector<std::string>& paths, std::int64_t vocabulary) {
  std::vector<Diagnostic> found;
  ShardSums sums;
  for (const Segment& segment : open_segments(paths))
    if (auto finding = check_shard(segment, vocabulary, sums))
      found.push_back(*std::move(finding));
  if (!found.empty())
    throw UserError(std::move(found));
  return sums;
}

}  // namespace trireme::data
