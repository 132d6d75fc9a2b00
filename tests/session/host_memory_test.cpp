// SPDX-License-Identifier: Apache-2.0
#include "session/host_memory.hpp"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/control_groups.hpp"

#include "session/machine.hpp"
#include "session/small_job.hpp"

namespace trireme::session {
namespace {

using testing::HasSubstr;

constexpr std::int64_t gib = std::int64_t{1} << 30;

TEST(HostMemory, IsKnown) {
  const AvailableMemory room = available_memory();
  EXPECT_GT(room.host_bytes, 0);
  EXPECT_LT(room.host_bytes, std::int64_t{1} << 60) << "no limit was read";
  EXPECT_NE(room.host_limit, "");
}

TEST(HostMemory, NamesTheLimitThatIsTooLow) {
  const AvailableMemory room{8 * gib, 5 * gib, "the memory of the host", "ulimit -v"};
  EXPECT_EQ(memory_problem(room, 4 * gib - process_bytes, 2), "");
  EXPECT_EQ(memory_problem(room, 4 * gib - process_bytes, 3),
            "3 ranks need 12 GiB (4 GiB each), but the memory of the host allows 8 GiB");
  EXPECT_EQ(memory_problem(room, 6 * gib - process_bytes, 1),
            "a rank needs 6 GiB, but ulimit -v allows it 5 GiB");
}

TEST(HostMemory, CountsTheProcessAlsoInWhatWouldFit) {
  const Job job = small_job();
  const layout::Plan plan(model::parameter_table(job.shape), {});
  const RankNeeds rank{job, job.shape, plan, {DType::f32, device::Kind::cpu}};
  constexpr std::int64_t none = 0, mib = std::int64_t{1} << 20;
  EXPECT_THAT(what_would_fit(rank, {gib, none, "a", "b"}, 1),
              testing::ContainsRegex("a rank still needs 6[4-9](\\.[0-9]+)? MiB\\."));
  EXPECT_THAT(what_would_fit(rank, {gib, 70 * mib, "a", "b"}, 1),
              testing::ContainsRegex("a rank needs 6[4-9](\\.[0-9]+)? MiB, which fits"));
}

TEST(LimitProblems, NameFilesAndLockedMemoryThatMayNotSuffice) {
  const auto texts = [](std::int64_t files, std::int64_t locked, int peers, bool pins) {
    std::string all;
    for (const auto& [text, remedy] : limit_problems("a", files, locked, peers, pins))
      all += text + ": " + remedy + "\n";
    return all;
  };
  EXPECT_EQ(texts(1024, unlimited, 768, true), "");
  EXPECT_EQ(texts(unlimited, 64 << 20, 1 << 20, true), "");
  EXPECT_EQ(texts(1024, unlimited, 769, true),
            "ulimit -n allows a process to open 1024 files on a, and a rank may need 1025: its own "
            "and a connection to each of 769 ranks elsewhere: raise the limit (ulimit -n 4100)\n");
  EXPECT_EQ(texts(1024, 8 << 20, 1, true),
            "ulimit -l limits locked memory to 8 MiB on a: with InfiniBand or GPUs, set ulimit -l "
            "unlimited; otherwise ignore this\n");
  EXPECT_EQ(texts(1024, 8 << 20, 1, false), "");
}

TEST(ShareOfCpus, RespectsQuotas) {
  EXPECT_EQ(share_of_cpus(8, false, 2, 0), 4);
  EXPECT_EQ(share_of_cpus(8, false, 2, 0.5), 1);
  EXPECT_EQ(share_of_cpus(8, false, 2, 5.5), 2);
  EXPECT_EQ(share_of_cpus(8, false, 2, 100), 4);
  EXPECT_EQ(share_of_cpus(3, true, 2, 4), 2);
  EXPECT_EQ(share_of_cpus(1, false, 2, 0), 1);
}

}  // namespace
}  // namespace trireme::session
