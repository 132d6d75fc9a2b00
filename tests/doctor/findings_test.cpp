// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.hpp"

#include <gtest/gtest.h>

namespace trireme::doctor {
namespace {

constexpr std::int64_t gibibyte = 1LL << 30;

HostFacts sound_host(const char* name) {
  return {.host = name,
          .kernel = "Linux 6.1.0",
          .processor = "one kind",
          .features = {"avx2"},
          .governor = "performance",
          .cpus = 4,
          .memory_bytes = 64 * gibibyte,
          .available_bytes = 60 * gibibyte,
          .huge_pages = "madvise",
          .shared_huge_pages = "advise",
          .locked_bytes = unlimited,
          .open_files = 65536,
          .shm_bytes = 32 * gibibyte,
          .shm_free_bytes = 32 * gibibyte};
}

/// Two hosts with two ranks each, without a finding.
Report sound() {
  Report report;
  report.mpi = "an MPI";
  report.hosts = {sound_host("a"), sound_host("b")};
  for (const char* host : {"a", "a", "b", "b"})
    report.placement.ranks.push_back({host, {0, 1, 2, 3}, 4, 2});
  report.device = "a processor";
  report.memory_bytes_per_s = {1e10, 1.1e10, 1e10, 0.9e10};
  report.fp32_flops = {1e11, 1e11, 1e11, 1e11};
  report.bf16_flops = {2e11, 2e11, 2e11, 2e11};
  report.collectives = {{.operation = "all_reduce",
                         .transport = "mpi",
                         .ranks = 4,
                         .bytes = 64 << 20,
                         .count = 16 << 20,
                         .redop = "sum",
                         .seconds = 0.1,
                         .algbw = 1e9,
                         .busbw = 1.5e9}};
  for (const char* host : {"a", "b"})
    report.file_systems.push_back({host, "/scratch", "xfs", 100 * gibibyte, 1e9, 0.001});
  return report;
}

/// The texts of the findings after a change to a report without findings.
template <class Change>
std::vector<std::string> found_after(Change change) {
  Report report = sound();
  change(report);
  std::vector<std::string> texts;
  for (const Finding& finding : findings_of(report)) texts.push_back(finding.text);
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Findings, AreNoneOfASoundMachine) {
  EXPECT_EQ(found_after([](Report&) {}), Texts{});
}

TEST(Findings, NameTheSlowRank) {
  EXPECT_EQ(found_after([](Report& r) { r.memory_bytes_per_s[3] = 0.8e10; }),
            Texts{"rank 3 on b reaches 80 % of the median rank in memory bandwidth"});
  EXPECT_EQ(found_after([](Report& r) { r.fp32_flops[1] = 0.5e11; }),
            Texts{"rank 1 on a reaches 50 % of the median rank in matrix products in fp32"});
  EXPECT_EQ(found_after([](Report& r) { r.bf16_flops[0] = 1.71e11; }), Texts{});
  EXPECT_EQ(found_after([](Report& r) { r.bf16_flops[0] = 1e11; }),
            Texts{"rank 0 on a reaches 50 % of the median rank in matrix products in bf16"});
}

TEST(Findings, NameWrongSums) {
  EXPECT_EQ(found_after([](Report& r) { r.collectives[0].wrong = 5; }),
            Texts{"all_reduce over mpi returned 5 wrong elements of 16777216"});
}

TEST(Findings, NameProcessesThatMpiDoesNotConnect) {
  EXPECT_EQ(found_after([](Report& r) {
              r.launch = {"srun", "PMI-2", "job 1, step 0", 4, ""};
            }),
            Texts{});
  EXPECT_EQ(found_after([](Report& r) {
              r.launch = {"srun", "PMI-2", "job 1, step 0", 8, ""};
            }),
            Texts{"srun started 8 processes, but MPI connects 4 of them"});
}

TEST(Findings, NameGpusWithoutADirectPath) {
  EXPECT_EQ(found_after([](Report& r) {
              r.gpu_pairs = {{0, 1, "a", "no peer access", "SHM"},
                             {2, 3, "b", "peer access with atomics, performance rank 0", "P2P"}};
            }),
            Texts{"NCCL has no direct path between GPUs of 1 pair of ranks on a"});
}

TEST(Findings, NameTheSlowPair) {
  const auto with = [](double latency_s, double bytes_per_s) {
    return found_after([&](Report& r) {
      r.placement.ranks[1].host = "c";
      r.pairs = {{0, 1, 1e-5, 1e9}, {0, 2, 1.1e-5, 1.2e9}, {1, 2, latency_s, bytes_per_s}};
    });
  };
  EXPECT_EQ(with(1.9e-5, 0.6e9), Texts{});
  EXPECT_EQ(with(5.5e-5, 1e9),
            Texts{"a message between c and b takes 55.0 us, 5.0 times the median of all pairs"});
  EXPECT_EQ(with(1e-5, 1e8),
            Texts{"the bandwidth between c and b is 0.1 GB/s, 10 % of the median of all pairs"});
  EXPECT_EQ(found_after([](Report& r) {
              r.pairs = {{0, 2, 1e-5, 1e9}, {0, 3, 1e-3, 1e5}};
            }),
            Texts{})
      << "of two pairs none is the usual one";
}

TEST(Findings, NameHostsThatDiffer) {
  EXPECT_EQ(found_after([](Report& r) { r.hosts[1].processor = "another"; }),
            Texts{"the hosts have 2 kinds of processors"});
  EXPECT_EQ(found_after([](Report& r) { r.hosts[1].features = {}; }),
            Texts{"hosts with equal processors have different instruction sets"});
}

TEST(Findings, NameLimitsOfAHost) {
  EXPECT_EQ(found_after([](Report& r) { r.hosts[0].cpu_limit = 1.5; }),
            Texts{"a control group limits this job to 1.5 of 4 CPUs on a"});
  EXPECT_EQ(
      found_after([](Report& r) {
        r.hosts[1].memory_limit_bytes = 2 * gibibyte;
        r.hosts[1].memory_limit_free_bytes = gibibyte;
      }),
      Texts{"a control group limits this job to 2 GiB of 64 GiB of memory on b, 1 GiB of it free"});
  EXPECT_EQ(found_after([](Report& r) { r.hosts[0].governor = "powersave"; }),
            Texts{"the CPU frequency governor is powersave on a"});
  EXPECT_EQ(found_after([](Report& r) { r.hosts[0].open_files = 256; }),
            Texts{"ulimit -n allows a process to open 256 files on a, and a rank may need 258: its "
                  "own and a connection to each of 2 ranks elsewhere"});
  EXPECT_EQ(found_after([](Report& r) { r.hosts[0].locked_bytes = 8 << 20; }),
            Texts{"ulimit -l limits locked memory to 8 MiB on a"});
  EXPECT_EQ(found_after([](Report& r) { r.hosts[1].shm_free_bytes = 64 << 20; }),
            Texts{"/dev/shm has 64 MiB free for 2 ranks on b"});
}

TEST(Findings, NameHugePagesThatAreReserved) {
  EXPECT_EQ(found_after([](Report& r) { r.hosts[1].reserved_huge_bytes = 8 * gibibyte; }),
            Texts{"8 GiB of 64 GiB of memory are reserved for huge pages (HugePages_Total) on b"});
  EXPECT_EQ(found_after([](Report& r) { r.hosts[1].reserved_huge_bytes = gibibyte; }), Texts{});
}

TEST(Findings, NameAFileSystemThatIsSlowOrFull) {
  EXPECT_EQ(found_after([](Report& r) { r.file_systems[0].type = "tmpfs"; }),
            Texts{"/scratch on a is memory (tmpfs)"});
  EXPECT_EQ(found_after([](Report& r) { r.file_systems[1].free_bytes = 1 << 20; }),
            Texts{"/scratch on b has 1 MiB free"});
  EXPECT_EQ(found_after([](Report& r) { r.file_systems[1].write_bytes_per_s = 3e7; }),
            Texts{"/scratch on b writes 30 MB/s"});
  EXPECT_EQ(found_after([](Report& r) { r.file_systems[0].sync_seconds = 0.2; }),
            Texts{"a synchronized write of 4 KiB takes 200 ms in /scratch on a"});
}

TEST(Findings, NameRanksThatShareCoresAndWhatToDo) {
  Report report = sound();
  for (auto& rank : report.placement.ranks) rank.threads = 4;
  auto found = findings_of(report);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].text, "8 threads of all ranks share 4 CPUs on a");
  EXPECT_EQ(found[0].remedy, "lower run.threads");
  for (auto& rank : report.placement.ranks) rank = {rank.host, {0}, 4, 2};
  found = findings_of(report);
  ASSERT_EQ(found.size(), 4U);
  for (const Finding& finding : found) EXPECT_NE(finding.remedy, "") << finding.text;
}

TEST(Report, PutsPairsWithEqualLinksOnOneLine) {
  Report report = sound();
  EXPECT_EQ(report_text(report).find("NCCL"), std::string::npos);
  report.gpus = {"rank 0 on a: a GPU"};
  report.nccl = "2.27.3";
  report.nccl_settings = {"NCCL_DEBUG=INFO"};
  report.gpu_pairs = {{0, 1, "a", "no peer access", "SHM"},
                      {0, 2, "a", "no peer access", "SHM"},
                      {1, 2, "a", "peer access with atomics, performance rank 0", "P2P"}};
  EXPECT_NE(report_text(report).find(
                "NCCL 2.27.3; expected, not measured:\n"
                "  P2P on a: peer access with atomics, performance rank 0 between ranks 1-2\n"
                "  SHM on a: no peer access between ranks 0-1 0-2\n"
                "  NET between hosts\n  NCCL_DEBUG=INFO\n"),
            std::string::npos)
      << report_text(report);
}

TEST(Findings, AreInTextAndJson) {
  Report report = sound();
  EXPECT_NE(report_text(report).find("no problems found\n"), std::string::npos);
  report.hosts[0].governor = "powersave";
  EXPECT_NE(report_text(report).find(
                "warning: the CPU frequency governor is powersave on a: an administrator"),
            std::string::npos);
  EXPECT_NE(report_json(report).find("\"text\": \"the CPU frequency governor is powersave on a\""),
            std::string::npos);
}

TEST(Report, HasMessagesBetweenRanks) {
  Report report = sound();
  report.pairs = {{0, 2, 2e-5, 1e9}};
  EXPECT_NE(report_text(report).find("  latency between hosts           20.0 us, a and b\n"
                                     "  bandwidth between hosts         1 GB/s, a and b\n"),
            std::string::npos)
      << report_text(report);
  report.hosts.pop_back();
  report.pairs = {{0, 1, 1e-6, 5e9}};
  EXPECT_NE(
      report_text(report).find("  latency between ranks           1.0 us, ranks 0 and 1 on a\n"),
      std::string::npos);
  report = sound();
  report.pairs = {{0, 2, 2e-5, 1e9}, {0, 3, 3e-5, 2e9}, {1, 2, 4e-5, 3e9}};
  EXPECT_NE(
      report_text(report).find("30.0 us, median of 3 pairs (minimum 20.0, maximum 40.0: a and b)"),
      std::string::npos);
  EXPECT_NE(report_text(report).find("2 GB/s, median of 3 pairs (maximum 3, minimum 1: a and b)"),
            std::string::npos);
  EXPECT_NE(report_json(report).find("\"latency_s\": 4e-05"), std::string::npos);
}

TEST(Report, HasFailedAndMeasuredParts) {
  Report report = sound();
  report.collectives.clear();
  report.problems = {{"collectives", 2, "shared memory: no space", ExitCode::environment}};
  const std::string text = report_text(report);
  EXPECT_EQ(text.find("no problems found"), std::string::npos);
  EXPECT_NE(text.find("error: collectives: not measured, or not on all ranks (rank 2): shared "
                      "memory: no space\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("10 GB/s per rank"), std::string::npos) << text;
  const std::string json = report_json(report);
  EXPECT_NE(json.find("\"part\": \"collectives\",\n   \"rank\": 2,\n   \"reason\": "
                      "\"shared memory: no space\""),
            std::string::npos)
      << json;
  report.memory_bytes_per_s.clear();
  EXPECT_NE(report_text(report).find("memory                          not measured\n"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::doctor
