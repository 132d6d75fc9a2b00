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

FileTokens::FileTokens(std::vector<TokenFile> files, Facts facts)
    : TokenStream(std::move(facts)), files_(std::move(files)), opened_(files_.size()) {
  std::int64_t end = 0;
  for (const TokenFile& file : files_) ends_.push_back(end += file.tokens);
}

std::size_t FileTokens::most_open() {
  constexpr std::int64_t most = 256;
  const std::int64_t allowed = ulimit_of(RLIMIT_NOFILE).value_or(4 * most) / 4;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(allowed, 1, most));
}

FileTokens::Opened FileTokens::opened(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  Opened& mine = opened_[number];
  if (mine.file != nullptr)
    return mine;
  const TokenFile& file = files_[number];
  auto input = std::make_shared<const files::InputFile>(file.open());
  if (!file.index.empty() && mine.hashes == nullptr) {
    auto blocks = read_block_hashes(file);
    auto checked = std::make_unique<std::atomic<bool>[]>(blocks.size());
    mine.hashes = std::make_shared<const Hashes>(Hashes{std::move(blocks), std::move(checked)});
  }
  mine.file = std::move(input);
  open_.push_back(number);
  if (open_.size() > most_open()) {
    opened_[open_.front()].file.reset();  // a thread that reads it now holds it until it is done
    open_.pop_front();
  }
  return mine;
}

void FileTokens::check(const TokenFile& file,
                       const Opened& opened,
                       std::int64_t begin,
                       std::int64_t end) {
  for (std::int64_t block = begin / block_bytes; block * block_bytes < end; ++block) {
    auto& checked = opened.hashes->checked[static_cast<std::size_t>(block)];
    if (checked.load(std::memory_order_relaxed))
      continue;
    std::array<std::byte, static_cast<std::size_t>(block_bytes)> room;
    const auto bytes = file.read_block(*opened.file, block, room);
    if (hash_of(bytes) != opened.hashes->blocks[static_cast<std::size_t>(block)])
      throw StorageError(
          "data", "read " + file.path,
          fmt::format("bytes {} to {} do not match their hash in {}: the file is damaged, was "
                      "changed while it was in use, or differs from that of rank 0. Restore it, or "
                      "remove it if it is a cache of text; if it was changed on purpose, remove "
                      "the index. Then start again",
                      file.offset + block * block_bytes,
                      file.offset + block * block_bytes + std::ssize(bytes), file.index));
    checked.store(true, std::memory_order_relaxed);
  }
}

void FileTokens::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  auto place = static_cast<std::size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
  while (!out.empty()) {
    const TokenFile& file = files_[place];
    const std::int64_t first = begin - (ends_[place] - file.tokens);
    // In pieces that fit on the stack: nothing is allocated here.
    std::array<std::byte, std::size_t{16} << 10U> room;
    const auto count = static_cast<std::size_t>(
        std::min({file.tokens - first, std::ssize(out), std::ssize(room) / file.width}));
    const auto bytes = std::span(room).first(count * static_cast<std::size_t>(file.width));
    const std::int64_t at = first * file.width;
    const Opened now = opened(place);
    if (now.hashes != nullptr)
      check(file, now, at, at + std::ssize(bytes));
    now.file->read(file.offset + at, bytes);
    const std::uint64_t highest = with_unsigned(file.width, [&](auto zero) {
      return widen<decltype(zero)>(bytes.data(), out.first(count));
    });
    if (std::cmp_greater_equal(highest, vocabulary())) [[unlikely]]
      throw StorageError(
          "data", "read " + file.path,
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

HeldTokens::HeldTokens(std::vector<std::int32_t> tokens,
                       std::int64_t vocabulary,
                       std::string description)
    : TokenStream({std::ssize(tokens), vocabulary,
                   hash_bytes({reinterpret_cast<const char*>(tokens.data()),
                               tokens.size() * sizeof tokens[0]}),
                   std::move(description)}),
      tokens_(std::move(tokens)) {
  for (const std::int32_t token : tokens_)
    TRIREME_EXPECT(token >= 0 && token < vocabulary, "token {} in a vocabulary of {}", token,
                   vocabulary);
}

void HeldTokens::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
}

SyntheticTokens::SyntheticTokens(std::int64_t size, std::int64_t vocabulary, std::uint64_t seed)
    : TokenStream({size, vocabulary,
                   StoredHash()
                       .add("synthetic")
                       .add(seed)
                       .add(static_cast<std::uint64_t>(vocabulary))
                       .add(static_cast<std::uint64_t>(size))
                       .value(),
                   fmt::format("{} synthetic tokens", size)}),
      key_(RandomKey::of(seed, Draw::synthetic)) {
  TRIREME_EXPECT(size >= 1 && vocabulary >= 1, "{} synthetic tokens of a vocabulary of {}", size,
                 vocabulary);
}

void SyntheticTokens::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  std::int64_t index = begin;
  std::uint64_t phrase = 0;
  for (auto& token : out) {
    const auto place = static_cast<std::uint64_t>(index % phrase_tokens);
    if (place == 0 || index == begin)  // counter_high 0: which phrase; 1: the book
      phrase = philox(key_, static_cast<std::uint64_t>(index / phrase_tokens)).w[0] % phrases;
    const Words4 random = philox(key_, phrase * phrase_tokens + place, 1);
    token = static_cast<std::int32_t>(
        below(static_cast<std::uint64_t>(vocabulary()), random.w[0], random.w[1]));
    ++index;
  }
}

}  // namespace trireme::tokens
