// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "plan/machine.hpp"

namespace trireme::plan {
namespace {

constexpr const char* good_machine = R"(version: 1
processor: a CPU
cpus: 2
links:
  - transport: mpi
    hosts: 2
    ranks: 2
    copy_s_per_byte: 8.0e-10
    collectives:
      - operation: all_gather
        dtype: bf16
        latency_s: 1.0e-5
        seconds_per_byte: 3.3e-10
        points:
          - {bytes: 1024, seconds: 1.5e-05}
          - {bytes: 4096, seconds: 1.7e-05}
compute:
  - model: "a: model, of words"
    precision: fp32
    threads: 1
    micro_sequences: 4
    ranks_on_host: 1
    micro_step_flops: 1.0e9
    micro_step_s: 0.01
    last_micro_step_s: 0.011
    ready: [{parameter: wte.weight, share: 1}]
)";

std::string findings_of(const std::string& text) {
  try {
    parse_machine(text, "m.yaml");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string with(std::string text, const std::string& old, const std::string& fresh) {
  return text.replace(text.find(old), old.size(), fresh);
}

TEST(MachineFile, IsReadAndWrittenToTheSameNumbers) {
  const Machine machine = parse_machine(good_machine, "m.yaml");
  ASSERT_EQ(machine.links.size(), 1U);
  EXPECT_EQ(machine.links[0].transport, comm::Transport::mpi);
  EXPECT_EQ(machine.links[0].copy_s_per_byte, 8e-10);
  EXPECT_EQ(machine.links[0].collectives[0].points[1].bytes, 4096);
  EXPECT_EQ(machine.compute[0].ready[0].parameter, "wte.weight");
  const std::string text = machine_text(machine);
  EXPECT_EQ(machine_text(parse_machine(text, "m.yaml")), text);
  EXPECT_NE(text.find("\n          - {bytes: 1024, seconds: 1.5e-05}\n"), std::string::npos)
      << text;
  EXPECT_EQ(parse_machine(text, "m.yaml").links[0].collectives[0].seconds_per_byte, 3.3e-10);
}

TEST(MachineFile, AnotherVersionIsRefusedWithThatAlone) {
  EXPECT_EQ(findings_of("version: 2\nother: 3\n"),
            "m.yaml:1:10: error: a machine file of version 2; this program reads version 1");
  EXPECT_EQ(findings_of("cpus: 2\n"), "m.yaml: error: version: the required key is missing");
}

TEST(MachineFile, EveryMistakeHasItsPlace) {
  const std::string said = findings_of(
      with(with(with(good_machine, "hosts: 2", "hosts: 0"), "1.7e-05", "fast"), "cpus", "cpu"));
  EXPECT_NE(said.find("m.yaml:3:1: error: cpu: unknown key: did you mean 'cpus'?"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("m.yaml:6:12: error: links[0].hosts: 0 is outside"), std::string::npos)
      << said;
  EXPECT_NE(said.find("m.yaml:16:36: error: links[0].collectives[0].points[1].seconds: 'fast'"),
            std::string::npos)
      << said;
}

TEST(MachineFile, SizesAscend) {
  const std::string said = findings_of(with(good_machine, "bytes: 4096", "bytes: 1024"));
  EXPECT_NE(said.find("links[0].collectives[0].points: the sizes do not ascend"), std::string::npos)
      << said;
}

TEST(MachineFile, WhatIsNoYamlMapIsRefused) {
  EXPECT_NE(findings_of(""), "");
  EXPECT_NE(findings_of("[1, 2]"), "");
  EXPECT_NE(findings_of("a: [1"), "");
  EXPECT_THROW(read_machine("/nowhere/m.yaml"), UserError);
}

}  // namespace
}  // namespace trireme::plan
