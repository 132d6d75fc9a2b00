// SPDX-License-Identifier: Apache-2.0
#include "data/token_stream.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace trireme::data {

namespace {

/// Returns the highest token, so that the loop stays free of branches.
template <class Token>
std::uint32_t widen(const std::byte* from, std::span<std::int32_t> out) {
  std::uint32_t highest = 0;
  for (auto& token : out) {
    Token value;  // tokens of a file need not be aligned
    std::memcpy(&value, from, sizeof value);
    from += sizeof value;
    highest = std::max(highest, std::uint32_t{value});
    token = static_cast<std::int32_t>(value);
  }
  return highest;
}

std::uint32_t widen(int token_bytes, const std::byte* from, std::span<std::int32_t> out) {
  if (token_bytes == 1)
    return widen<std::uint8_t>(from, out);
  return token_bytes == 2 ? widen<std::uint16_t>(from, out) : widen<std::uint32_t>(from, out);
}

}  // namespace

MappedTokens::MappedTokens(std::vector<Segment> segments,
                           std::int64_t vocabulary,
                           std::uint64_t content_hash,
                           std::string description)
    : segments_(std::move(segments)),
      vocabulary_(vocabulary),
      content_hash_(content_hash),
      description_(std::move(description)) {
  std::int64_t end = 0;
  for (const Segment& segment : segments_) {
    const int width = segment.token_bytes;
    TRIREME_EXPECT(width == 1 || width == 2 || width == 4, "tokens of {} bytes", width);
    TRIREME_EXPECT(
        segment.tokens >= 0 && segment.offset + static_cast<std::size_t>(segment.tokens * width) <=
                                   segment.file.bytes().size(),
        "{} tokens of {} bytes from byte {} in {}", segment.tokens, width, segment.offset,
        segment.file.path());
    ends_.push_back(end += segment.tokens);
  }
}

void MappedTokens::read(std::int64_t begin, std::span<std::int32_t> out) const {
  TRIREME_EXPECT(begin >= 0 && begin + std::ssize(out) <= size(), "tokens [{}, {}) of {}", begin,
                 begin + std::ssize(out), size());
  auto place = static_cast<std::size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
  while (!out.empty()) {
    const Segment& segment = segments_[place];
    const std::int64_t first = begin - (ends_[place] - segment.tokens);
    const auto count =
        static_cast<std::size_t>(std::min<std::int64_t>(segment.tokens - first, std::ssize(out)));
    const std::byte* from = segment.file.bytes().data() + segment.offset +
                            static_cast<std::size_t>(first * segment.token_bytes);
    const std::uint32_t highest = widen(segment.token_bytes, from, out.first(count));
    if (highest >= vocabulary_) [[unlikely]]
      throw UserError(Place{segment.file.path()},
                      fmt::format("token {} in [{}, {}) is outside the vocabulary of {}", highest,
                                  first, first + static_cast<std::int64_t>(count), vocabulary_));
    out = out.subspan(count);
    begin += static_cast<std::int64_t>(count);
    ++place;
  }
}

}  // namespace trireme::data
