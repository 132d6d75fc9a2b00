// SPDX-License-Identifier: Apache-2.0
// Unicode's normalization form C: characters and their marks in one spelling, which some tokenizers
// (Qwen) bring a text into before they cut it. Bytes that are not UTF-8 stay what they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::text {

/// Whether the text is certainly in form C already: one pass, at about the speed of reading for text
/// below U+0300. False says nothing.
bool is_surely_nfc(std::string_view text);

/// The text in form C.
std::string nfc(std::string_view text);

/// Whether form C of a text is that of its parts before and from this character on, whatever is
/// before it: it neither has a combining class nor composes with what it follows.
bool begins_nfc(std::uint32_t code);

}  // namespace trireme::text
