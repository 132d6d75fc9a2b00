// SPDX-License-Identifier: Apache-2.0
#include "doctor/host_facts.hpp"

#include <gtest/gtest.h>

#include "base/kernel_text.hpp"
#include "base/packing.hpp"

namespace trireme::doctor {
namespace {

TEST(HostFacts, ReadsTheProcessor) {
  const std::string x86 =
      "processor\t: 0\nmodel name\t: AMD EPYC 9354\nflags\t\t: fpu avx2 avx512f avx512_bf16\n\n"
      "processor\t: 1\nmodel name\t: another\n";
  EXPECT_EQ(processor_name(x86), "AMD EPYC 9354");
  EXPECT_EQ(processor_features(x86), (std::vector<std::string>{"avx2", "avx512f", "avx512_bf16"}));
  const std::string arm = "processor\t: 0\nFeatures\t: fp asimd sve bf16\n";
  EXPECT_EQ(processor_name(arm), "");
  EXPECT_EQ(processor_features(arm), (std::vector<std::string>{"asimd", "bf16", "sve"}));
  EXPECT_TRUE(processor_features("").empty());
}

TEST(HostFacts, ReadsLimits) {
  EXPECT_EQ(chosen_word("always [madvise] never\n"), "madvise");
  EXPECT_EQ(chosen_word("nothing chosen"), "");
  EXPECT_EQ(chosen_word("]["), "");
  EXPECT_EQ(bytes_of("MemTotal:  24 kB\nMemAvailable:    7 kB\n", "MemAvailable"), 7 * 1024);
  EXPECT_EQ(bytes_of("MemTotal:  24 kB\n", "MemAvailable"), 0);
  EXPECT_EQ(reserved_huge_bytes("HugePages_Total:       3\nHugePages_Free: 1\n"
                                "Hugepagesize:       2048 kB\n"),
            3 * 2048 * 1024);
  EXPECT_EQ(reserved_huge_bytes("MemTotal:  24 kB\n"), 0);
}

TEST(HostFacts, ArePackedAsText) {
  HostFacts facts = facts_of_this_host("here");
  EXPECT_EQ(unpack<HostFacts>(pack(facts)), facts);
  facts = {"a\"b", "Linux", "x\ny",   {"avx2"}, "powersave", 3, 1.5, 7, 6,     5,
           8,      "never", "advise", 9,        unlimited,   4, 3,   2, "RAPL"};
  EXPECT_EQ(unpack<HostFacts>(pack(facts)), facts);
}

TEST(HostFacts, HaveUsableMemoryWithinLimits) {
  HostFacts facts;
  facts.available_bytes = 10;
  EXPECT_EQ(usable_bytes(facts), 10);
  facts.memory_limit_bytes = 9;
  facts.memory_limit_free_bytes = 4;
  EXPECT_EQ(usable_bytes(facts), 4);
  facts.memory_limit_free_bytes = 0;
  EXPECT_EQ(usable_bytes(facts), 0);
  facts.memory_limit_free_bytes = 12;
  EXPECT_EQ(usable_bytes(facts), 10);
}

TEST(HostFacts, KnowsThisHost) {
  const HostFacts facts = facts_of_this_host("here");
  EXPECT_EQ(facts.host, "here");
  EXPECT_GE(facts.cpus, 1);
  EXPECT_GT(facts.memory_bytes, facts.available_bytes);
  EXPECT_GT(facts.available_bytes, 0);
  EXPECT_TRUE(facts.kernel.starts_with("Linux ")) << facts.kernel;
  EXPECT_NE(facts.open_files, 0);
}

}  // namespace
}  // namespace trireme::doctor
