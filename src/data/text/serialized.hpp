// SPDX-License-Identifier: Apache-2.0
// The first lines of a serialized tokenizer, which state its kind, and the hash of its text.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/vocabulary.hpp"

namespace trireme::text {

inline constexpr std::string_view serialized_bytes = "trireme tokenizer 1\nkind bytes\n";
inline constexpr std::string_view serialized_bpe = "trireme tokenizer 1\nkind bpe\n";

/// As Tokenizer::hash() has it.
std::uint64_t hash_of(const Vocabulary& vocabulary);

}  // namespace trireme::text
