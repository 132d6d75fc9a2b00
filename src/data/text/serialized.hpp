// SPDX-License-Identifier: Apache-2.0
// The first lines of a serialized tokenizer, which state its kind.
#pragma once

#include <string_view>

namespace trireme::text {

inline constexpr std::string_view serialized_bytes = "trireme tokenizer 1\nkind bytes\n";
inline constexpr std::string_view serialized_bpe = "trireme tokenizer 1\nkind bpe\n";

}  // namespace trireme::text
