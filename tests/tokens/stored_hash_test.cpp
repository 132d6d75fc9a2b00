// SPDX-License-Identifier: Apache-2.0
#include "tokens/stored_hash.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <gtest/gtest.h>

#include "tokens/token_stream.hpp"

namespace trireme::tokens {
namespace {

std::uint64_t hash_of(std::string_view bytes) {
  return StoredHash().add(std::as_bytes(std::span(bytes.data(), bytes.size()))).value();
}

TEST(StoredHash, GivesThePublishedValuesOfFnv1a) {
  EXPECT_EQ(hash_of(""), 0xcbf29ce484222325U);
  EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(hash_of("foobar"), 0x85944171f73967e8U);
}

TEST(StoredHash, TakesTheLengthOfATextAsEightBytesBeforeIt) {
  using namespace std::string_view_literals;
  EXPECT_EQ(StoredHash().add("ab").value(), hash_of("\2\0\0\0\0\0\0\0ab"sv));
  EXPECT_EQ(StoredHash().add(std::uint64_t{0x0102}).value(), hash_of("\2\1\0\0\0\0\0\0"sv));
}

// Checkpoints store values derived from this hash: the hash of name, seed, vocabulary and size,
// computed independently from the published definition.
TEST(StoredHash, OfSyntheticTokensStaysWhatCheckpointsHold) {
  EXPECT_EQ(SyntheticTokens(500, 256, 1).content_hash(), 0xa9977acaf16cd492U);
}

}  // namespace
}  // namespace trireme::tokens
