// SPDX-License-Identifier: Apache-2.0
// Which layers of a model with an attention window have it. A deck gives a string of letters: S
// (short) has the window, L (long) sees all that came before.
//
// 1. A string with a letter for each layer holds as it is.
// 2. A shorter one is repeated over the layers, and the last layer is long whatever letter falls on
//    it: nanochat's window_pattern (github.com/karpathy/nanochat, nanochat/gpt.py), "SSSL" there.
//    The list of layers in a config.json of transformers need not end so: it is one of rule 1.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::model {

inline constexpr std::int64_t most_layers = 1000;
/// The layers that see everything, by their numbers.
using LongLayers = std::bitset<most_layers>;

/// Of a word of S and L; other letters count as S. None where the number of layers is 0 or less
/// than that of letters.
LongLayers long_layers(std::string_view pattern, std::int64_t layers);

/// A letter for each layer.
std::string pattern_of(const LongLayers& long_layers, std::int64_t layers);

}  // namespace trireme::model
