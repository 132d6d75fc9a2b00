// SPDX-License-Identifier: Apache-2.0
#include "data/llmc_shards.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/error.hpp"

#include "data/hash.hpp"

namespace trireme::data {

namespace {

constexpr std::size_t header_bytes = 256 * sizeof(std::int32_t);
constexpr std::size_t hashed_bytes = std::size_t{64} << 10U;

/// The text of the finding, or nothing when `segment` now describes the shard.
std::string examine(Segment& segment) {
  const auto bytes = segment.file.bytes();
  if (bytes.size() < header_bytes)
    return fmt::format("is no token shard: {} bytes, its header alone takes {}", bytes.size(),
                       header_bytes);
  std::array<std::int32_t, 3> header{};
  std::memcpy(header.data(), bytes.data(), sizeof header);
  const auto [magic, version, tokens] = header;
  if (magic != 20240520 && magic != 20240801)
    return fmt::format("is no token shard of llm.c: it starts with {}, not 20240520 or 20240801",
                       magic);
  const std::int32_t known = magic == 20240520 ? 1 : 7;
  if (version != known)
    return fmt::format("is a token shard of version {}, this program reads version {}", version,
                       known);
  segment.token_bytes = magic == 20240520 ? 2 : 4;
  segment.offset = header_bytes;
  segment.tokens = tokens;
  const auto wanted =
      std::int64_t{header_bytes} + std::int64_t{tokens} * std::int64_t{segment.token_bytes};
  const auto size = std::ssize(bytes);
  if (tokens < 1)
    return fmt::format("is a token shard of {} tokens", tokens);
  if (size != wanted)
    return fmt::format("token shard is {}: {} bytes where its header says {}",
                       size < wanted ? "truncated" : "too long", size, wanted);
  return {};
}

std::vector<Segment> map_shards(const std::vector<std::string>& paths) {
  std::vector<Segment> segments;
  std::vector<Diagnostic> found;
  for (const auto& path : paths) {
    Segment segment;
    segment.file = MappedFile(path);
    if (auto text = examine(segment); !text.empty())
      found.push_back({{path}, "", std::move(text)});
    segments.push_back(std::move(segment));
  }
  if (!found.empty())
    throw UserError(std::move(found));
  return segments;
}

template <class Token>
std::optional<Diagnostic> first_outside(const Segment& segment, std::int64_t vocabulary) {
  const std::byte* from = segment.file.bytes().data() + segment.offset;
  constexpr std::int64_t block = 4096;
  std::array<Token, block> tokens{};
  for (std::int64_t begin = 0; begin < segment.tokens; begin += block) {
    const auto count = static_cast<std::size_t>(std::min(block, segment.tokens - begin));
    std::memcpy(tokens.data(), from + static_cast<std::size_t>(begin) * sizeof(Token),
                count * sizeof(Token));
    Token highest = 0;
    for (std::size_t i = 0; i < count; ++i) highest = std::max(highest, tokens[i]);
    if (highest < vocabulary)
      continue;
    std::size_t i = 0;
    while (tokens[i] < vocabulary) ++i;
    return Diagnostic{{segment.file.path()},
                      "",
                      fmt::format("token {} is {}, model.vocabulary is {}",
                                  begin + static_cast<std::int64_t>(i), tokens[i], vocabulary)};
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<TokenStream> open_shards(const std::vector<std::string>& paths,
                                         std::int64_t vocabulary) {
  auto segments = map_shards(paths);
  Hash hash;
  std::int64_t tokens = 0, highest = 0;
  for (const Segment& segment : segments) {
    const auto bytes = segment.file.bytes();
    hash.add(bytes.first(std::min(bytes.size(), header_bytes + hashed_bytes)));
    hash.add(bytes.last(std::min(bytes.size(), hashed_bytes)));
    tokens += segment.tokens;
    highest = std::max(highest, std::int64_t{1} << (8 * segment.token_bytes));
  }
  auto description = fmt::format("{} tokens in {} shards, {}", tokens, paths.size(),
                                 paths.empty() ? "none" : paths.front());
  return std::make_unique<MappedTokens>(std::move(segments), std::min(vocabulary, highest),
                                        hash.value(), std::move(description));
}

void check_shards(const std::vector<std::string>& paths, std::int64_t vocabulary) {
  std::vector<Diagnostic> found;
  for (const Segment& segment : map_shards(paths)) {
    auto finding = segment.token_bytes == 2 ? first_outside<std::uint16_t>(segment, vocabulary)
                                            : first_outside<std::uint32_t>(segment, vocabulary);
    if (finding)
      found.push_back(*std::move(finding));
  }
  if (!found.empty())
    throw UserError(std::move(found));
}

}  // namespace trireme::data
