// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_pairs.hpp"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/packing.hpp"

namespace trireme::doctor {
namespace {

RankGpu rank_on(const std::string& host,
                const std::string& gpu,
                std::vector<device::GpuLink> links) {
  return {.host = host, .gpu = gpu, .links = std::move(links)};
}

/// Two GPUs of one host with equal links in both directions.
std::vector<RankGpu> two(bool access, bool atomics) {
  return {rank_on("a", "GPU-0", {{"GPU-0", "GPU-1", access, atomics, 1}}),
          rank_on("a", "GPU-1", {{"GPU-1", "GPU-0", access, atomics, 0}})};
}

TEST(GpuPairs, ExpectWhatTheLinkAllows) {
  EXPECT_EQ(
      pairs_of(two(true, true)),
      (std::vector<GpuPair>{{0, 1, "a", "peer access with atomics, performance rank 1", "P2P"}}));
  EXPECT_EQ(pairs_of(two(true, false)),
            (std::vector<GpuPair>{
                {0, 1, "a", "peer access without atomics, performance rank 1", "P2P or SHM"}}));
  EXPECT_EQ(pairs_of(two(false, false)),
            (std::vector<GpuPair>{{0, 1, "a", "no peer access", "SHM"}}));
}

TEST(GpuPairs, AreLimitedByTheWeakerDirection) {
  auto ranks = two(true, true);
  ranks[1].links[0].native_atomics = false;
  EXPECT_EQ(pairs_of(ranks)[0].expected, "P2P or SHM");
  ranks[1].links.clear();
  EXPECT_EQ(pairs_of(ranks)[0].link, "the ranks do not see each other's GPU");
  EXPECT_EQ(pairs_of(ranks)[0].expected, "SHM");
}

TEST(GpuPairs, FollowTheSettingsOfNccl) {
  auto ranks = two(true, true);
  ranks[0].peer_off = true;
  EXPECT_EQ(pairs_of(ranks)[0].expected, "SHM");
  ranks[1].shared_off = true;
  EXPECT_EQ(pairs_of(ranks)[0].expected, "NET");
  ranks[0].peer_off = false;
  EXPECT_EQ(pairs_of(ranks)[0].expected, "P2P");
}

TEST(GpuPairs, AreInsideHosts) {
  const std::vector<RankGpu> ranks = {rank_on("a", "GPU-0", {}), rank_on("b", "GPU-0", {}),
                                      rank_on("a", "GPU-0", {}), rank_on("b", "GPU-1", {})};
  const auto pairs = pairs_of(ranks);
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs[0].expected, "none: NCCL does not support two ranks on one GPU");
  EXPECT_EQ((std::pair{pairs[1].first, pairs[1].second}), (std::pair{1, 3}));
}

TEST(GpuPairs, ArePackedAsText) {
  RankGpu gpu = rank_on("a\"b", "GPU-0", {{"GPU-0", "GPU-1", true, false, 2}});
  gpu.shared_off = true;
  EXPECT_EQ(unpack<RankGpu>(pack(gpu)), gpu);
}

TEST(GpuPairs, ListTheVariablesOfNccl) {
  setenv("NCCL_TRIREME_TEST", "7", 1);
  const auto settings = nccl_settings();
  unsetenv("NCCL_TRIREME_TEST");
  EXPECT_NE(std::ranges::find(settings, "NCCL_TRIREME_TEST=7"), settings.end());
  for (const std::string& setting : settings) EXPECT_TRUE(setting.starts_with("NCCL_"));
}

}  // namespace
}  // namespace trireme::doctor
