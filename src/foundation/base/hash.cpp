// SPDX-License-Identifier: Apache-2.0
#include "base/hash.hpp"

#include <bit>
#include <cstring>

#include "base/clones.hpp"

namespace trireme {
namespace {

constexpr std::uint64_t prime1 = 0x9E3779B185EBCA87U, prime2 = 0xC2B2AE3D27D4EB4FU,
                        prime3 = 0x165667B19E3779F9U, prime4 = 0x85EBCA77C2B2AE63U,
                        prime5 = 0x27D4EB2F165667C5U;
static_assert(std::endian::native == std::endian::little, "words are read as they are stored");

template <class Word>
std::uint64_t word_at(const char* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * prime2, 31) * prime1;
}

/// Hashing must not be slower than the disk, because checkpoints are hashed while they are written.
/// Vectorized 64-bit products need AVX-512.
template <class Word>
TRIREME_VECTOR_CLONES std::uint64_t sum_of(const std::byte* data,
                                           std::int64_t elements,
                                           std::int64_t begin) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    Word bits;
    std::memcpy(&bits, data + static_cast<std::size_t>(i) * sizeof bits, sizeof bits);
    sum += element_hash(static_cast<std::uint64_t>(begin + i), bits);
  }
  return sum;
}

}  // namespace

std::uint64_t hash_elements(ConstView data, std::int64_t begin) {
  switch (size_bytes(data.dtype)) {
    case 1:
      return sum_of<std::uint8_t>(data.data, data.elements, begin);
    case 2:
      return sum_of<std::uint16_t>(data.data, data.elements, begin);
    case 4:
      return sum_of<std::uint32_t>(data.data, data.elements, begin);
    default:
      return sum_of<std::uint64_t>(data.data, data.elements, begin);
  }
}

std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  std::uint64_t hash = seed + prime5;
  if (bytes.size() >= 32) {
    std::uint64_t lanes[4] = {seed + prime1 + prime2, seed + prime2, seed, seed - prime1};
    for (; end - at >= 32; at += 32)
      for (std::size_t lane = 0; lane < 4; ++lane)
        lanes[lane] = round(lanes[lane], word_at<std::uint64_t>(at + 8 * lane));
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
           std::rotl(lanes[3], 18);
    for (const std::uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * prime1 + prime4;
  }
  hash += bytes.size();
  for (; end - at >= 8; at += 8)
    hash = std::rotl(hash ^ round(0, word_at<std::uint64_t>(at)), 27) * prime1 + prime4;
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (word_at<std::uint32_t>(at) * prime1), 23) * prime2 + prime3;
    at += 4;
  }
  for (; at != end; ++at)
    hash = std::rotl(hash ^ (word_at<unsigned char>(at) * prime5), 11) * prime1;
  hash = (hash ^ (hash >> 33U)) * prime2;
  hash = (hash ^ (hash >> 29U)) * prime3;
  return hash ^ (hash >> 32U);
}

}  // namespace trireme
