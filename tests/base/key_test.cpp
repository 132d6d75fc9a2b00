// SPDX-License-Identifier: Apache-2.0
#include "base/key.hpp"

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/index.hpp"

namespace trireme {
namespace key_test {
enum class Color : std::uint8_t { red, dark_blue };
enum class Shade : std::uint8_t { automatic, dark, light_2 };
}  // namespace key_test
template <>
struct EnumNames<key_test::Color> {
  static constexpr std::pair<key_test::Color, const char*> table[] = {
      {key_test::Color::red, "red"}, {key_test::Color::dark_blue, "dark-blue"}};
};

namespace {

struct Config {
  std::int64_t steps = 7;
  Or<double> minutes{{}, "none"};
  key_test::Color color = key_test::Color::red;
};
template <class V>
void describe(V& v, Config& c) {
  v("steps", c.steps, {.unit = "steps", .help = "How many.", .min = 1, .required = true});
  v("minutes", c.minutes, {.unit = "minutes", .help = "How long.", .min = 0.0, .above_min = true});
  v("color", c.color, {.help = "Which."});
}

/// A visitor like the one that `job` writes: one call per key, bounds of the value's own type.
struct Collector {
  std::vector<std::string> names;
  std::vector<bool> bounded;
  template <class T>
  void operator()(const char* name, T&, const Key<T>& key) {
    names.emplace_back(name);
    bounded.push_back(key.min.has_value());
  }
};

TEST(KeyTest, OneDescriptionServesAnyVisitor) {
  Config config;
  Collector collector;
  describe(collector, config);
  EXPECT_EQ(collector.names, (std::vector<std::string>{"steps", "minutes", "color"}));
  EXPECT_EQ(collector.bounded, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(config.steps, 7);
}

TEST(KeyTest, BoundsOfAKeywordOrNumberAreNumbers) {
  EXPECT_TRUE((std::same_as<BoundOf<Or<double>>::type, double>));
  EXPECT_TRUE((std::same_as<BoundOf<std::int64_t>::type, std::int64_t>));
}

TEST(KeyTest, AKeywordMeansThatNoValueIsGiven) {
  Or<double> minutes{{}, "none"};
  EXPECT_FALSE(minutes.given());
  EXPECT_EQ(minutes.value_or(2.5), 2.5);
  minutes.value = 1.0;
  EXPECT_TRUE(minutes.given());
  EXPECT_EQ(minutes.value_or(2.5), 1.0);
  EXPECT_FALSE(minutes == (Or<double>{{}, "none"}));
}

TEST(KeyTest, EnumsHaveWords) {
  EXPECT_STREQ(word(key_test::Color::dark_blue), "dark-blue");
  EXPECT_TRUE(NamedEnum<key_test::Color>);
  EXPECT_FALSE(NamedEnum<ParameterIndex>);
  EXPECT_EQ(std::size(EnumNames<key_test::Shade>::table), 3U);
  EXPECT_STREQ(word(key_test::Shade::automatic), "auto");
  EXPECT_STREQ(word(key_test::Shade::light_2), "light_2");
}

TEST(IndexTest, IndicesDoNotMix) {
  EXPECT_FALSE((std::is_convertible_v<ParameterIndex, BucketIndex>));
  EXPECT_FALSE((std::is_convertible_v<int, BucketIndex>));
  EXPECT_EQ(at(BucketIndex{5}), 5U);
  EXPECT_EQ(at(ParameterIndex{0}), 0U);
}

}  // namespace
}  // namespace trireme
