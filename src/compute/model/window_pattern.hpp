// SPDX-License-Identifier: Apache-2.0
// Translates the deck key window_pattern to the set of layers with an attention window. A deck
// gives a string of letters: S (short) has the window, L (long) attends to all earlier tokens.
//
// 1. A string with one letter per layer is used as it is.
// 2. A shorter one is repeated over the layers, and the last layer is always long, as in nanochat
//    (github.com/karpathy/nanochat, nanochat/gpt.py, window_pattern "SSSL").
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::model {

inline constexpr std::int64_t most_layers = 1000;
/// The numbers of the layers without window.
using LongLayers = std::bitset<most_layers>;

/// The long layers of a pattern of S and L; other letters count as S. None if `layers` is 0 or
/// smaller than the number of letters.
LongLayers long_layers(std::string_view pattern, std::int64_t layers);

/// One letter per layer.
std::string pattern_of(const LongLayers& long_layers, std::int64_t layers);

}  // namespace trireme::model
