// SPDX-License-Identifier: Apache-2.0
#include "comm/control/agreement.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "comm/control/placement.hpp"
#include "comm/control/together.hpp"

namespace trireme::comm {
namespace {

/// Length at which a message cuts a value.
constexpr std::size_t longest_value = 60;

/// The ranks that have each value of a fact.
struct Values {
  std::string name;
  bool is_users = false;
  std::map<std::string, std::vector<int>> ranks;
};

/// "0.1 on ranks 0-2, 0.2 on rank 3".
std::string text_of(const Values& fact, int size) {
  std::vector<std::pair<std::vector<int>, std::string>> by_first_rank;
  std::vector<int> without;
  without.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) without.push_back(rank);
  for (const auto& [value, ranks] : fact.ranks) {
    for (const int rank : ranks) std::erase(without, rank);
    by_first_rank.emplace_back(
        ranks, value.size() <= longest_value ? value : value.substr(0, longest_value) + "…");
  }
  if (!without.empty())
    by_first_rank.emplace_back(without, "nothing");
  std::ranges::sort(by_first_rank);
  std::string text;
  for (const auto& [ranks, value] : by_first_rank)
    text +=
        fmt::format("{}{} on rank{} {}", text.empty() ? "" : ", ", value.empty() ? "\"\"" : value,
                    ranks.size() == 1 ? "" : "s", ranges_text(ranks));
  return text;
}

}  // namespace

void expect_agreement(World& world, const std::vector<Fact>& facts, std::string_view what) {
  const std::string mine = pack(facts);
  const std::uint64_t hash = hash_bytes(mine);
  if (differing(world, {&hash, 1}).empty())
    return;
  std::vector<Values> differences;  // in the order in which the ranks first named the facts
  const auto all = gather_packed(world, facts);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (const Fact& fact : all[rank]) {
      auto known = std::ranges::find(differences, fact.name, &Values::name);
      if (known == differences.end())
        known = differences.insert(known, {fact.name, fact.owner == Fact::Owner::user, {}});
      known->ranks[fact.value].push_back(static_cast<int>(rank));
    }
  std::erase_if(differences, [&](const Values& fact) {
    return fact.ranks.size() == 1 &&
           fact.ranks.begin()->second.size() == static_cast<std::size_t>(world.size());
  });
  TRIREME_EXPECT(!differences.empty(), "hashes of {} facts differ, and facts do not", facts.size());
  std::vector<Diagnostic> findings;
  std::string text;
  for (const auto& fact : differences) {
    const std::string where = text_of(fact, world.size());
    text += (text.empty() ? "" : "; ") + fact.name + ": " + where;
    findings.push_back({{}, fact.name, "differs between ranks: " + where});
  }
  if (std::ranges::any_of(differences, &Values::is_users))
    throw UserError(std::move(findings));
  if (world.rank() != 0)
    throw FailedElsewhere(0, text);
  CommError error("the machine", what, text);
  error.mark_known_to_all();
  throw error;  // NOLINT(misc-throw-by-value-catch-by-reference): it is marked first
}

std::vector<std::size_t> differing(World& world, std::span<const std::uint64_t> values) {
  // One maximum gives the largest value and, of the complements, the smallest.
  std::vector<std::int64_t> extremes;
  for (const std::uint64_t value : values)
    for (const std::uint64_t one : {value, ~value})
      extremes.push_back(static_cast<std::int64_t>(one));
  world.max(extremes);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (extremes[2 * i] != ~extremes[2 * i + 1])
      found.push_back(i);
  return found;
}

}  // namespace trireme::comm
