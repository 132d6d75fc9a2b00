// SPDX-License-Identifier: Apache-2.0
#include "record/also/event_file.hpp"

#include <array>
#include <bit>
#include <cstddef>

namespace trireme::record {
namespace {

/// Of the reflected polynomial 0x1EDC6F41.
constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? 0x82F63B78U : 0U);
    table[byte] = rest;
  }
  return table;
}();

template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof value, '\0');
  for (std::size_t i = 0; i < sizeof value; ++i)
    bytes[i] = static_cast<char>((value >> (8 * i)) & 0xFFU);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80U; value >>= 7U) bytes += static_cast<char>((value & 0x7FU) | 0x80U);
  return bytes + static_cast<char>(value);
}

/// Wire types of Protocol Buffers.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

std::string key(unsigned field, Wire wire) {
  return varint(field << 3U | static_cast<unsigned>(wire));
}

std::string number_field(unsigned field, std::uint64_t value) {
  return key(field, Wire::varint) + varint(value);
}

std::string bytes_field(unsigned field, std::string_view bytes) {
  return key(field, Wire::bytes) + varint(bytes.size()) + std::string(bytes);
}

std::string event_begin(double wall_time) {
  return key(1, Wire::fixed64) + little_endian(std::bit_cast<std::uint64_t>(wall_time));
}

std::string event_begin(double wall_time, std::int64_t step) {
  return event_begin(wall_time) + number_field(2, static_cast<std::uint64_t>(step));
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = ~0U;
  for (const char byte : bytes)
    rest = crc_table[(rest ^ static_cast<unsigned char>(byte)) & 0xFFU] ^ (rest >> 8U);
  return ~rest;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

std::string framed(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked_crc32c(length)) + std::string(data) +
         little_endian(masked_crc32c(data));
}

std::string version_event(double wall_time) {
  return framed(event_begin(wall_time) + bytes_field(3, "brain.Event:2"));
}

std::string restart_event(double wall_time, std::int64_t step) {
  return framed(event_begin(wall_time, step) + bytes_field(7, number_field(1, 1)));
}

std::string scalars_event(double wall_time,
                          std::int64_t step,
                          std::span<const std::pair<std::string, float>> scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary += bytes_field(1, bytes_field(1, tag) + key(2, Wire::fixed32) +
                                  little_endian(std::bit_cast<std::uint32_t>(value)));
  return framed(event_begin(wall_time, step) + bytes_field(5, summary));
}

}  // namespace trireme::record
