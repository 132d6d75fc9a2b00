// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_pairs.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

namespace trireme::doctor {
namespace {

bool is_on(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr && std::string_view(value) == "1";
}

const device::GpuLink* link_to(const RankGpu& from, const RankGpu& to) {
  const auto found = std::ranges::find(from.links, to.gpu, &device::GpuLink::to);
  return found == from.links.end() ? nullptr : &*found;
}

/// The weaker direction decides.
GpuPair pair_of(int first, int second, const RankGpu& one, const RankGpu& other) {
  GpuPair pair{.first = first, .second = second, .host = one.host, .link = {}, .expected = {}};
  const device::GpuLink* forth = link_to(one, other);
  const device::GpuLink* back = link_to(other, one);
  const bool seen = forth != nullptr && back != nullptr;
  const bool access = seen && forth->peer_access && back->peer_access;
  const bool atomics = access && forth->native_atomics && back->native_atomics;
  if (one.gpu == other.gpu)
    pair.link = "the same GPU";
  else if (!seen)
    pair.link = "the ranks do not see each other's GPU";
  else if (!access)
    pair.link = "no peer access";
  else
    pair.link =
        fmt::format("peer access {} atomics, performance rank {}", atomics ? "with" : "without",
                    std::max(forth->performance_rank, back->performance_rank));
  if (one.gpu == other.gpu)
    pair.expected = "none: NCCL does not support two ranks on one GPU";
  else if (access && !one.peer_off && !other.peer_off)
    pair.expected = atomics ? "P2P" : "P2P or SHM";
  else
    pair.expected = one.shared_off || other.shared_off ? "NET" : "SHM";
  return pair;
}

}  // namespace

RankGpu gpu_of_this_rank(const std::string& host, const device::Device& device) {
  RankGpu mine{.host = host,
               .gpu = device.uuid(),
               .links = device::links_between_gpus(),
               .peer_off = is_on("NCCL_P2P_DISABLE"),
               .shared_off = is_on("NCCL_SHM_DISABLE")};
  std::erase_if(mine.links, [&](const device::GpuLink& link) { return link.from != mine.gpu; });
  return mine;
}

std::vector<GpuPair> pairs_of(const std::vector<RankGpu>& ranks) {
  std::vector<GpuPair> pairs;
  for (std::size_t first = 0; first < ranks.size(); ++first)
    for (std::size_t second = first + 1; second < ranks.size(); ++second)
      if (ranks[first].host == ranks[second].host)
        pairs.push_back(pair_of(static_cast<int>(first), static_cast<int>(second), ranks[first],
                                ranks[second]));
  return pairs;
}

std::vector<std::string> nccl_settings() {
  std::vector<std::string> settings;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (std::string_view(*variable).starts_with("NCCL_"))
      settings.emplace_back(*variable);
  std::ranges::sort(settings);
  return settings;
}

}  // namespace trireme::doctor
