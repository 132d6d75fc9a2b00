// SPDX-License-Identifier: Apache-2.0
// FNV-1a with 64 bits, fed piece by piece, for the values that files of earlier versions hold:
//
//   checkpoints     data_hash and data_position, made of the content_hash() of streams and windows
//   token caches    their names, the fingerprints of their sources, the checksums of their headers
//   tokenize        the fingerprint of the sources in PREFIX.parts/job
//
// With another function, every older run would seem to have other data, and every cache would be
// built again. So these values keep it. New hashes use XXH64 (base/hash.hpp), which is better and
// faster. Neither protects against intent.
//
// Source: Fowler, Noll, Vo; constants of the IETF draft draft-eastlake-fnv.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme::tokens {

class StoredHash {
 public:
  StoredHash& add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
    return *this;
  }
  /// The length goes in as well, so that "ab","c" and "a","bc" differ.
  StoredHash& add(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    return add(std::as_bytes(std::span(text.data(), text.size())));
  }
  StoredHash& add(std::uint64_t number) { return add(std::as_bytes(std::span(&number, 1))); }

  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace trireme::tokens
