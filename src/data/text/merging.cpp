// SPDX-License-Identifier: Apache-2.0
#include "text/merging.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace trireme::text {

MergeTable::MergeTable(std::size_t merges) {
  const std::size_t slots = std::bit_ceil(2 * merges + 16);
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots));
  mask_ = slots - 1;
  merges_.resize(slots);
}

bool MergeTable::add(Token left, Token right, std::uint32_t rank, Token token) {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t at = first_slot(pair);
  for (; merges_[at].pair != none; at = (at + 1) & mask_)
    if (merges_[at].pair == pair)
      return false;
  merges_[at] = {pair, rank, token};
  return true;
}

std::size_t MergeTable::merge_short(std::span<Token> tokens) const {
  // Of each neighbour pair, by its left token: the rank, and what it becomes.
  std::array<std::uint32_t, short_piece> ranks;
  std::array<Token, short_piece> merged;
  std::size_t count = tokens.size();
  const auto look = [&](std::size_t i) {
    const Merge* found = find(tokens[i], tokens[i + 1]);
    ranks[i] = found == nullptr ? no_rank : found->rank;
    merged[i] = found == nullptr ? 0 : found->token;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] < ranks[best])
        best = i;
    if (ranks[best] == no_rank)
      break;
    tokens[best] = merged[best];
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      tokens[i] = tokens[i + 1];
      ranks[i - 1] = ranks[i];
      merged[i - 1] = merged[i];
    }
    if (best + 1 < count)
      look(best);
    if (best > 0)
      look(best - 1);
  }
  return count;
}

namespace {

constexpr std::int64_t nothing = -1;
constexpr Token dead = -1;
struct Links {
  std::int64_t before, after;
};
struct Candidate {
  std::uint32_t rank;
  Token left, right, merged;
  std::int64_t at;
  /// The heap's top is the lowest rank, of equals the leftmost.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

}  // namespace

std::size_t MergeTable::merge_long(std::span<Token> tokens) const {
  const auto count = std::ssize(tokens);
  std::vector<Links> links(tokens.size());
  std::vector<Candidate> heap;
  const auto token_at = [&](std::int64_t i) -> Token& {
    return tokens[static_cast<std::size_t>(i)];
  };
  const auto link_at = [&](std::int64_t i) -> Links& { return links[static_cast<std::size_t>(i)]; };
  const auto look = [&](std::int64_t i) {
    const std::int64_t after = link_at(i).after;
    if (after == nothing)
      return false;
    const Merge* found = find(token_at(i), token_at(after));
    if (found == nullptr)
      return false;
    heap.push_back({found->rank, token_at(i), token_at(after), found->token, i});
    return true;
  };
  for (std::int64_t i = 0; i < count; ++i) link_at(i) = {i - 1, i + 1 < count ? i + 1 : nothing};
  for (std::int64_t i = 0; i < count; ++i) look(i);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    const std::int64_t after = link_at(best.at).after;
    if (token_at(best.at) != best.left || after == nothing || token_at(after) != best.right)
      continue;  // one of the two has been merged since
    token_at(best.at) = best.merged;
    token_at(after) = dead;
    const std::int64_t next = link_at(after).after, before = link_at(best.at).before;
    link_at(best.at).after = next;
    if (next != nothing)
      link_at(next).before = best.at;
    if (look(best.at))
      std::push_heap(heap.begin(), heap.end());
    if (before != nothing && look(before))
      std::push_heap(heap.begin(), heap.end());
  }
  return static_cast<std::size_t>(std::remove(tokens.begin(), tokens.end(), dead) - tokens.begin());
}

}  // namespace trireme::text
