// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "model/config.hpp"
#include "model/layers.hpp"
#include "model/shape.hpp"

namespace trireme::model {
namespace {

std::string spelled_out(std::string_view pattern, std::int64_t layers) {
  return pattern_of(long_layers(pattern, layers), layers);
}

TEST(WindowPattern, RepeatsAndEndsLong) {
  EXPECT_EQ(spelled_out("SSSL", 12), "SSSLSSSLSSSL");
  EXPECT_EQ(spelled_out("SSSL", 6), "SSSLSL");
  EXPECT_EQ(spelled_out("SL", 3), "SLL");
  EXPECT_EQ(spelled_out("S", 4), "SSSL");
  EXPECT_EQ(spelled_out("L", 2), "LL");
}

TEST(WindowPattern, OfAllLayersIsTakenAsItIs) {
  EXPECT_EQ(spelled_out("LLSS", 4), "LLSS");
  EXPECT_EQ(spelled_out("S", 1), "S");
}

TEST(WindowPattern, OfMoreLettersThanLayersOrNoneMeansNothing) {
  EXPECT_TRUE(long_layers("LLLL", 3).none());
  EXPECT_TRUE(long_layers("L", 0).none());
  EXPECT_TRUE(long_layers("", 3).none());
  EXPECT_TRUE(long_layers("L", most_layers + 1).none());
}

GptShape resolved(std::optional<std::int64_t> window, std::optional<std::string> pattern) {
  ModelConfig config{.preset = Preset::nanochat_d12};
  config.attention_window.value = window;
  config.window_pattern.value = pattern;
  return resolve(config);
}

TEST(WindowPattern, NamesTheLayersThatHaveTheWindow) {
  const GptShape shape = resolved(512, "SSSL");
  for (std::int64_t l = 0; l < 12; ++l) {
    EXPECT_EQ(shape.window_of(l), l % 4 == 3 ? 0 : 512) << l;
    EXPECT_EQ(attention_shape(shape, l, DType::f32, 1).window, shape.window_of(l));
  }
  for (std::int64_t l = 0; l < 12; ++l) EXPECT_EQ(resolved(512, {}).window_of(l), 512);
}

TEST(WindowPattern, EqualModelsAreEqual) {
  EXPECT_EQ(resolved(512, "SSSL"), resolved(512, "SSSLSSSLSSSL"));
  EXPECT_NE(resolved(512, "SSSL"), resolved(512, "SSL"));
  EXPECT_EQ(resolved(512, "SSSSSSSSSSSS"), resolved(512, {}));
  EXPECT_EQ(resolved(512, "L"), resolved({}, {})) << "a window that no layer has";
  EXPECT_EQ(resolved({}, "SSSL"), resolved({}, {}));
}

TEST(WindowPattern, FlopsAreThoseOfEachLayer) {
  // d12: 6 heads of 128, context 2048; a window of 512 shows 512 (2 - 1/4) of 2048 pairs a token.
  const double whole = flops_per_token(resolved({}, {}));
  const double layer = 6.0 * 768 * 2048;
  EXPECT_DOUBLE_EQ(flops_per_token(resolved(512, "SSSL")),
                   whole - 9 * (layer - 6.0 * 768 * 512 * 1.75));
  EXPECT_DOUBLE_EQ(flops_per_token(resolved(4096, "SSSL")), whole);
}

}  // namespace
}  // namespace trireme::model
