// SPDX-License-Identifier: Apache-2.0
// Nine tokens with a Megatron index, written byte by byte.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::tokens {

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Sequences of 3, 2 and 4 tokens; documents begin with the first and the third.
inline std::string index_of(std::uint8_t type, std::int64_t width) {
  std::string bytes("MMIDIDX\0\0", 9);
  put<std::uint64_t>(bytes, 1);
  put(bytes, type);
  put<std::uint64_t>(bytes, 3);
  put<std::uint64_t>(bytes, 3);
  for (const std::int32_t length : {3, 2, 4}) put(bytes, length);
  for (const std::int64_t place : {0, 3, 5}) put(bytes, place * width);
  for (const std::int64_t document : {0, 2, 3}) put<std::int64_t>(bytes, document);
  return bytes;
}

template <class T>
std::string tokens_of() {
  std::string bytes;
  for (int token = 1; token <= 9; ++token) put(bytes, static_cast<T>(token));
  return bytes;
}

}  // namespace trireme::tokens
