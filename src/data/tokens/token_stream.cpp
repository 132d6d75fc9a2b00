// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <sys/resource.h>

#include "base/kernel_text.hpp"

#include "tokens/stored_hash.hpp"

namespace trireme::tokens {

namespace {

/// Returns the highest token, so that the loop stays free of branches.
template <class Token>
std::uint64_t widen(const std::byte* from, std::span<std::int32_t> out) {
  Token highest = 0;
  for (auto& token : out) {
    Token value;  // tokens of a file need not be aligned
    std::memcpy(&value, from, sizeof value);
    from += sizeof value;
    highest = std::max(highest, value);
    token = static_cast<std::int32_t>(value);
  }
  return highest;
}

TokenStream::Facts marked(const TokenStream& stream,
                          const std::vector<std::int64_t>& documents,
                          std::int32_t mark) {
  StoredHash hash;
  hash.add(stream.content_hash()).add(static_cast<std::uint64_t>(mark));
  return {stream.size() + std::ssize(documents),
          std::max(stream.vocabulary(), std::int64_t{mark} + 1),
          hash.add(std::as_bytes(std::span(documents))).value(), stream.description()};
}

}  // namespace

void pack_tokens(std::span<const std::int32_t> tokens, int width, std::vector<std::byte>& out) {
  const auto bytes = static_cast<std::size_t>(width);
  std::size_t at = out.size();
  out.resize(at + tokens.size() * bytes);
  for (const std::int32_t token : tokens) {
    std::memcpy(out.data() + at, &token, bytes);  // little-endian: the low bytes come first
    at += bytes;
  }
}

FileTokens::FileTokens(std::vector<Segment> segments, Facts facts)
    : TokenStream(std::move(facts)), segments_(std::move(segments)) {
  std::int64_t end = 0;
  for (const Segment& segment : segments_) ends_.push_back(end += segment.tokens());
}

std::size_t FileTokens::most_open() {
  constexpr std::int64_t most = 256;
  const std::int64_t allowed = ulimit_of(RLIMIT_NOFILE).value_or(4 * most) / 4;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(allowed, 1, most));
}

void FileTokens::note_opened(std::size_t segment) const {
  const std::lock_guard lock(mutex_);
  open_.push_back(segment);
  if (open_.size() > most_open()) {
    segments_[open_.front()].close();
    open_.pop_front();
  }
}

void FileTokens::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  auto place = static_cast<std::size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
  while (!out.empty()) {
    const Segment& segment = segments_[place];
    const int width = segment.token_bytes();
    const std::int64_t first = begin - (ends_[place] - segment.tokens());
    // In pieces that fit on the stack: nothing is allocated here.
    std::array<std::byte, std::size_t{16} << 10U> room;
    const auto count = static_cast<std::size_t>(
        std::min({segment.tokens() - first, std::ssize(out), std::ssize(room) / width}));
    const auto bytes = std::span(room).first(count * static_cast<std::size_t>(width));
    if (segment.read(first * width, bytes))
      note_opened(place);
    const std::uint64_t highest = with_unsigned(
        width, [&](auto zero) { return widen<decltype(zero)>(bytes.data(), out.first(count)); });
    if (std::cmp_greater_equal(highest, vocabulary())) [[unlikely]]
      throw StorageError(
          "data", "read " + segment.path(),
          fmt::format("token {} in [{}, {}) is outside the vocabulary of {}", highest, first,
                      first + static_cast<std::int64_t>(count), vocabulary()));
    out = out.subspan(count);
    begin += static_cast<std::int64_t>(count);
    if (begin == ends_[place])
      ++place;
  }
}

MarkedTokens::MarkedTokens(std::unique_ptr<TokenStream> stream,
                           std::vector<std::int64_t> documents,
                           std::int32_t mark)
    : TokenStream(marked(*stream, documents, mark)),
      stream_(std::move(stream)),
      documents_(std::move(documents)),
      mark_(mark) {}

void MarkedTokens::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  // The first mark that is not before `begin`.
  const auto place = [&](const std::int64_t& document) {
    return mark_of(&document - documents_.data());
  };
  auto next = std::ranges::lower_bound(documents_, begin, {}, place) - documents_.begin();
  while (!out.empty()) {
    if (next < std::ssize(documents_) && mark_of(next) == begin) {
      out.front() = mark_;
      out = out.subspan(1);
      ++begin;
      ++next;
      continue;
    }
    const std::int64_t until =
        next < std::ssize(documents_) ? mark_of(next) : begin + std::ssize(out);
    const auto part =
        out.first(static_cast<std::size_t>(std::min<std::int64_t>(until - begin, std::ssize(out))));
    stream_->read(begin - next, part);
    out = out.subspan(part.size());
    begin += std::ssize(part);
  }
}

}  // namespace trireme::tokens
