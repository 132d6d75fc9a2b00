// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/hosts.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"

namespace trireme::comm {

Hosts::Hosts(std::span<const int> host_of) : places_(host_of.size()) {
  TRIREME_EXPECT(!host_of.empty(), "hosts of {} ranks", host_of.size());
  std::map<int, int> numbers;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto [known, fresh] =
        numbers.try_emplace(host_of[rank], static_cast<int>(members_.size()));
    if (fresh)
      members_.emplace_back();
    auto& members = members_[static_cast<std::size_t>(known->second)];
    places_[rank] = {known->second, static_cast<int>(members.size()), 0};
    members.push_back(static_cast<int>(rank));
  }
  int position = 0;
  for (const auto& members : members_)
    for (const int rank : members) places_[static_cast<std::size_t>(rank)].position = position++;
}

Hosts Hosts::in_blocks(int ranks, int hosts) {
  std::vector<int> host_of;
  for (int host = 0; host < hosts; ++host) {
    const int here = ranks / hosts + (host < ranks % hosts ? 1 : 0);
    host_of.insert(host_of.end(), static_cast<std::size_t>(here), host);
  }
  return Hosts(host_of);
}

bool Hosts::equal() const {
  return std::ranges::all_of(
      members_, [&](const auto& members) { return members.size() == members_[0].size(); });
}

int Hosts::agent(int host, int owner) const {
  const Place& its = place(owner);
  if (its.host == host)
    return owner;
  const auto& here = members(host);
  return here[static_cast<std::size_t>(its.position) % here.size()];
}

}  // namespace trireme::comm
