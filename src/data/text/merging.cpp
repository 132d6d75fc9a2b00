// SPDX-License-Identifier: Apache-2.0
#include "text/merging.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

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

constexpr Token dead = -1;
struct Candidate {
  std::uint32_t rank;
  Token left, right, merged;
  std::size_t at;
  /// The first in the queue is the lowest rank, of equals the leftmost.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

}  // namespace

std::size_t MergeTable::merge_long(std::span<Token> tokens) const {
  const std::size_t none_there = tokens.size();
  std::vector<std::size_t> before(tokens.size()), after(tokens.size());
  std::priority_queue<Candidate> queue;
  const auto look = [&](std::size_t i) {
    if (i == none_there || after[i] == none_there)
      return;
    const Token left = tokens[i], right = tokens[after[i]];
    if (const Merge* found = find(left, right))
      queue.push({found->rank, left, right, found->token, i});
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    before[i] = i > 0 ? i - 1 : none_there;
    after[i] = i + 1;
    look(i);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const std::size_t next = after[best.at];
    if (tokens[best.at] != best.left || next == none_there || tokens[next] != best.right)
      continue;  // one of the two has been merged since
    tokens[best.at] = best.merged;
    tokens[next] = dead;
    after[best.at] = after[next];
    if (after[next] != none_there)
      before[after[next]] = best.at;
    look(best.at);
    look(before[best.at]);
  }
  return static_cast<std::size_t>(std::remove(tokens.begin(), tokens.end(), dead) - tokens.begin());
}

}  // namespace trireme::text
