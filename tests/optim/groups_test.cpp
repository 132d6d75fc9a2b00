// SPDX-License-Identifier: Apache-2.0
// The deck's rules resolved against a parameter table: which parameter gets which values, and their
// effect on updates.
#include "optim/groups.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optim/rule.hpp"

namespace trireme::optim {
namespace {

std::vector<layout::Parameter> table() {
  return {{.name = "wte.weight", .shape = {7, 4}, .decay = true},
          {.name = "h.0.ln_1.weight", .shape = {4}},
          {.name = "h.0.attn.qkv.weight", .shape = {12, 4}, .decay = true},
          {.name = "h.0.attn.qkv.bias", .shape = {12}}};
}

GroupRule rule(std::string match, std::optional<double> decay, std::optional<double> rate = {}) {
  GroupRule made;
  made.match = std::move(match);
  made.weight_decay.value = decay;
  made.learning_rate.value = rate;
  return made;
}

TEST(Groups, WithoutRulesOnlyMatricesDecay) {
  OptimizerConfig config;
  config.learning_rate = 0.25;
  config.weight_decay = 0.5;
  const auto parameters = table();
  const Groups groups = resolve_groups(config, parameters);
  ASSERT_EQ(groups.all.size(), 2U);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Group& group = groups.all[groups.of(static_cast<ParameterIndex>(p))];
    EXPECT_EQ(group.weight_decay, parameters[p].decay ? 0.5 : 0.0);
    EXPECT_EQ(group.learning_rate, 0.25);
    EXPECT_EQ(group.rule, -1);
  }
  EXPECT_EQ(groups.all[0].parameters, 2);
  EXPECT_EQ(groups.all[0].elements, 28 + 48);
  EXPECT_EQ(groups.all[1].elements, 4 + 12);
}

TEST(Groups, TheFirstMatchingRuleAppliesAndKeepsValuesThatItDoesNotGive) {
  OptimizerConfig config;
  config.learning_rate = 0.25;
  config.weight_decay = 0.5;
  config.groups = {rule("wte.*", 0.0), rule("*.weight", {}, 0.125), rule("wte.weight", 3.0)};
  const Groups groups = resolve_groups(config, table());
  const auto of = [&](int p) { return groups.all[groups.of(static_cast<ParameterIndex>(p))]; };
  EXPECT_EQ(of(0).weight_decay, 0.0);
  EXPECT_EQ(of(0).learning_rate, 0.25);
  EXPECT_EQ(of(1).weight_decay, 0.0);
  EXPECT_EQ(of(1).learning_rate, 0.125);
  EXPECT_EQ(of(2).weight_decay, 0.5);
  EXPECT_EQ(of(2).learning_rate, 0.125);
  EXPECT_EQ(of(3).rule, -1);
  for (const Group& group : groups.all) EXPECT_NE(group.rule, 2);  // rule 0 matches first
  EXPECT_EQ(groups.all.size(), 4U);  // one rule, matrices and a gain: two groups
  const std::string text = groups_text(groups);
  EXPECT_THAT(text, ::testing::HasSubstr("wte.*"));
  EXPECT_THAT(text, ::testing::HasSubstr("default"));
}

TEST(Groups, PatternsMayHaveStarsAndQuestionMarks) {
  EXPECT_TRUE(matches("*.bias", "h.0.attn.qkv.bias"));
  EXPECT_TRUE(matches("h.?.attn.*", "h.0.attn.qkv.bias"));
  EXPECT_TRUE(matches("wte.weight", "wte.weight"));
  EXPECT_FALSE(matches("wte", "wte.weight"));
  EXPECT_FALSE(matches("h.?.attn.*", "h.10.attn.qkv.bias"));
}

/// One element of each of two groups: AdamW's first step moves it by the rate and decays it by
/// rate·decay.
TEST(AdamWRule, EachGroupHasItsOwnNumbers) {
  OptimizerConfig config;
  config.learning_rate = 0.25;
  config.weight_decay = 0.5;
  config.schedule.kind = Schedule::constant;
  config.groups = {rule("*.bias", 0.25, 0.125)};
  const Groups groups = resolve_groups(config, table());
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::inlined, "compute");
  Rule made(config, groups, 1);
  made.begin_step(1, 10, 1);
  const auto after = [&](int parameter) {
    float value = 2, m = 0, v = 0;
    float gradient = 4;
    Update update;
    update.parameter = update.state[0] = view_of(&value, 1);
    update.state[1] = view_of(&m, 1);
    update.state[2] = view_of(&v, 1);
    update.gradient = view_of(&gradient, 1);
    update.group = groups.of(static_cast<ParameterIndex>(parameter));
    made.update({&update, 1}, {}, *stream);
    EXPECT_NE(m, 0);
    EXPECT_NE(v, 0);
    return value;
  };
  EXPECT_NEAR(after(0), 2 - 0.25 * (1 + 0.5 * 2), 1e-6);
  EXPECT_NEAR(after(1), 2 - 0.25, 1e-6);
  EXPECT_NEAR(after(3), 2 - 0.125 * (1 + 0.25 * 2), 1e-6);
}

TEST(StateSlots, BeginWithTheMasterAndHaveTheirOwnNames) {
  OptimizerConfig config;
  config.outer.local_steps = 2;
  for (const auto& [kind, word] : EnumNames<Kind>::table) {
    config.kind = kind;
    const layout::StateSlots slots = state_slots(config);
    std::set<std::string> names;
    for (const layout::StateSlot& slot : slots) names.insert(slot.name);
    EXPECT_EQ(slots.front().name, "master") << word;
    EXPECT_EQ(names.size(), slots.size()) << word;
    EXPECT_LE(slots.size(), most_slots) << word;
    for (const layout::StateSlot& slot : slots)
      EXPECT_EQ(slot.of_replica, slot.name.starts_with("moment")) << slot.name;
  }
}

TEST(StateSlots, HoldMomentsInTheirDTypeAndTheMasterInFp32) {
  for (const auto& [kind, kind_name] : EnumNames<Kind>::table)
    for (const auto& [type, type_name] : EnumNames<FloatDType>::table) {
      OptimizerConfig config;
      config.kind = kind;
      config.moment_dtype = type;
      const layout::StateSlots slots = state_slots(config);
      EXPECT_EQ(slots[0].dtype, DType::f32);
      for (std::size_t i = 1; i < slots.size(); ++i)
        EXPECT_EQ(slots[i].dtype, type == FloatDType::bf16 ? DType::bf16 : DType::f32)
            << kind_name << ", " << type_name;
    }
}

}  // namespace
}  // namespace trireme::optim
