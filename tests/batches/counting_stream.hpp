// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "tokens/token_stream.hpp"

namespace trireme::batches {

/// Token i is i, so that a window shows its position in the stream.
class CountingStream : public tokens::TokenStream {
 public:
  explicit CountingStream(std::int64_t size, std::uint64_t hash = 1)
      : TokenStream({size, size, hash, "counting"}) {}

 private:
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override {
    for (auto& token : out) token = static_cast<std::int32_t>(begin++);
  }
};

}  // namespace trireme::batches
