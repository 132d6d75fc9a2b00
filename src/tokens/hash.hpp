// SPDX-License-Identifier: Apache-2.0
// FNV-1a with 64 bits, fed piece by piece: names contents and guards headers against accidents. It
// is no protection against intent.
// Source: Fowler, Noll, Vo; constants of the IETF draft draft-eastlake-fnv.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme::tokens {

class Hash {
 public:
  Hash& add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
    return *this;
  }
  /// The length goes in as well, so that "ab","c" and "a","bc" differ.
  Hash& add(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    return add(std::as_bytes(std::span(text.data(), text.size())));
  }
  Hash& add(std::uint64_t number) { return add(std::as_bytes(std::span(&number, 1))); }

  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace trireme::tokens
