// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_weights.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::weights {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

record::NameValues facts_of(model::Preset preset) {
  model::ModelConfig config;
  config.preset = preset;
  return model_facts(resolve(config));
}

// Checkpoints have stated these facts since their first format, and files of other versions have
// them: no key may change them.
TEST(ModelFacts, OfPresetsAreWhatTheyAlwaysWere) {
  EXPECT_THAT(
      facts_of(model::Preset::gpt2_124m),
      UnorderedElementsAre(Pair("layers", "12"), Pair("heads", "12"), Pair("channels", "768"),
                           Pair("context", "1024"), Pair("vocabulary", "50304"), Pair("bias", "1"),
                           Pair("tied_head", "1")));
  EXPECT_THAT(facts_of(model::Preset::llama32_1b),
              UnorderedElementsAreArray(record::NameValues{{"layers", "16"},
                                                           {"heads", "32"},
                                                           {"channels", "2048"},
                                                           {"context", "131072"},
                                                           {"vocabulary", "128256"},
                                                           {"bias", "0"},
                                                           {"tied_head", "1"},
                                                           {"key_value_heads", "8"},
                                                           {"mlp_channels", "8192"},
                                                           {"norm", "rms_norm"},
                                                           {"activation", "swiglu"},
                                                           {"positions", "rotary"},
                                                           {"rotary_theta", "500000"},
                                                           {"rotary_factor", "32"}}));
  EXPECT_THAT(facts_of(model::Preset::qwen3_06b),
              UnorderedElementsAreArray(record::NameValues{{"layers", "28"},
                                                           {"heads", "16"},
                                                           {"channels", "1024"},
                                                           {"context", "40960"},
                                                           {"vocabulary", "151936"},
                                                           {"bias", "0"},
                                                           {"tied_head", "1"},
                                                           {"key_value_heads", "8"},
                                                           {"head_channels", "128"},
                                                           {"mlp_channels", "3072"},
                                                           {"norm", "rms_norm"},
                                                           {"norm_epsilon", "1e-06"},
                                                           {"qk_norm", "with_gain"},
                                                           {"activation", "swiglu"},
                                                           {"positions", "rotary"},
                                                           {"rotary_theta", "1000000"}}));
  EXPECT_THAT(facts_of(model::Preset::nanochat_d12), UnorderedElementsAreArray(record::NameValues{
                                                         {"layers", "12"},
                                                         {"heads", "6"},
                                                         {"channels", "768"},
                                                         {"context", "2048"},
                                                         {"vocabulary", "65536"},
                                                         {"bias", "0"},
                                                         {"tied_head", "0"},
                                                         {"norm", "rms_norm"},
                                                         {"norm_gain", "0"},
                                                         {"embedding_norm", "1"},
                                                         {"norm_epsilon", "1.1920928955078125e-07"},
                                                         {"qk_norm", "without_gain"},
                                                         {"activation", "squared_relu"},
                                                         {"positions", "rotary"},
                                                         {"rotary_theta", "100000"},
                                                         {"logit_softcap", "15"}}));
}

model::ModelConfig base() {
  model::ModelConfig config{
      .layers = 4, .heads = 4, .channels = 16, .context = 8, .vocabulary = 32};
  config.positions.value = model::Positions::rotary;
  config.rotary_scaling.factor.value = 2.0;
  config.attention_window.value = 3;
  config.bias.value = false;
  return config;
}

/// Changes, one after another, each key that no resume may change from its value in base(): every
/// change must add an entry to `found`.
class OtherValues {
 public:
  struct Entry {
    std::string key;
    model::ModelConfig config;
  };
  explicit OtherValues(model::ModelConfig& config) : config_(config) {}

  void operator()(const char* name, std::int64_t& value, const Key<std::int64_t>& key) {
    keep(name, value, 2 * value, key.change);
  }
  template <class T>
  void operator()(const char* name, Or<T>& value, const Key<Or<T>>& key) {
    if constexpr (NamedEnum<T>) {
      for (const auto& [other, text] : EnumNames<T>::table)
        keep(name, value.value, std::optional<T>(other), key.change);
    } else {
      for (const T& other : others(T{}))
        keep(name, value.value, std::optional<T>(other), key.change);
    }
  }
  template <class T>
  void operator()(const char* name, T& /*value*/, const Key<T>& key) {
    EXPECT_NE(key.change, Change::never) << name << ": this test has no other values for its type";
  }
  template <class Config>
  void section(const char* /*name*/, Config& config) {
    describe(*this, config);
  }
  std::vector<Entry> found;

 private:
  static std::vector<std::int64_t> others(std::int64_t) { return {2}; }
  static std::vector<double> others(double) { return {1.5}; }
  static std::vector<std::string> others(const std::string&) { return {"LSLS"}; }
  static std::array<bool, 2> others(bool) { return {false, true}; }

  template <class T>
  void keep(const char* name, T& value, T other, Change change) {
    if (change != Change::never)
      return;
    const T before = value;
    value = other;
    found.push_back({name, config_});
    value = before;
  }

  model::ModelConfig& config_;
};

TEST(ModelFacts, EveryKeyThatNoResumeMayChangeComesBack) {
  std::map<std::string, bool> changes;
  for (const auto& [type, name] : EnumNames<ops::RotaryScalingType>::table) {
    model::ModelConfig config = base();
    config.rotary_scaling.type.value = type;
    const model::GptShape usual = resolve(config);
    OtherValues others(config);
    describe(others, config);
    for (const auto& [key, other] : others.found) {
      model::GptShape shape = resolve(other);
      changes[key] = changes[key] || shape != usual;
      shape.output_init = usual.output_init;  // existing weights need no initial values
      EXPECT_EQ(shape_from(model_facts(shape), "run"), shape) << name << " " << key;
    }
  }
  EXPECT_GE(changes.size(), 25U);
  for (const auto& [key, changed] : changes)
    EXPECT_TRUE(changed) << key << ": none of its values here makes another model";
}

TEST(ModelFacts, ValuesThatOnlyLookUsualComeBack) {
  model::ModelConfig config = base();
  config.rotary_scaling.type.value = ops::RotaryScalingType::yarn;
  config.rotary_scaling.factor.value = 32;
  config.rotary_scaling.attention_factor.value = 1;  // without the key: 1 + 0.1 log(32)
  EXPECT_EQ(shape_from(model_facts(resolve(config)), "run"), resolve(config));
  config = base();
  config.channels = 4 * config.heads + 1;  // channels / heads is 4 as well, with a remainder
  config.head_channels.value = 4;
  EXPECT_EQ(shape_from(model_facts(resolve(config)), "run"), resolve(config));
}

TEST(ModelFacts, AbsentOnesTakeTheirDefaults) {
  const record::NameValues sizes{
      {"layers", "2"}, {"heads", "2"}, {"channels", "8"}, {"context", "8"}, {"vocabulary", "32"}};
  model::ModelConfig config{.layers = 2, .heads = 2, .channels = 8, .context = 8, .vocabulary = 32};
  EXPECT_EQ(shape_from(sizes, "run"), resolve(config));
  for (std::size_t missing = 0; missing < sizes.size(); ++missing) {
    record::NameValues fewer = sizes;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(missing));
    EXPECT_THAT([&] { static_cast<void>(shape_from(fewer, "run")); },
                ::testing::ThrowsMessage<UserError>(
                    HasSubstr("does not contain the model's " + sizes[missing].first)));
  }
}

TEST(ModelFacts, OfNoModelAreRefused) {
  const auto with = [](const std::string& name, const std::string& value) {
    auto facts = model_facts(resolve(base()));
    std::erase_if(facts, [&](const auto& fact) { return fact.first == name; });
    facts.emplace_back(name, value);
    return facts;
  };
  const std::vector<std::array<std::string, 3>> cases{
      {"norm", "batch_norm", "the invalid value batch_norm for the model's norm"},
      {"bias", "yes", "the invalid value yes for the model's bias"},
      {"rotary_factor", "much", "the invalid value much for the model's rotary_factor"},
      {"heads", "many", "the invalid value many for the model's heads"},
      {"channels", "9223372036854775807", "the invalid value 9223372036854775807"},
      {"heads", "0", "the invalid value 0 for the model's heads"},
      {"heads", "3", "no possible model"},
      {"layers", "100000000", "the invalid value 100000000"},
      {"key_value_heads", "3", "no possible model"},
      {"key_value_heads", "-4", "the invalid value -4"},
      {"rotary_theta", "-1", "no possible model"},
      {"rotary_high_freq_factor", "0.5", "no possible model"},
      {"attention_window", "-2", "the invalid value -2"},
      {"norm_epsilon", "0", "no possible model"}};
  for (const auto& [name, value, message] : cases)
    EXPECT_THAT([facts = with(name, value)] { static_cast<void>(shape_from(facts, "run")); },
                ::testing::ThrowsMessage<UserError>(HasSubstr(message)))
        << name;
}

}  // namespace
}  // namespace trireme::weights
