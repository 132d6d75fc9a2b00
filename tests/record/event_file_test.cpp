// SPDX-License-Identifier: Apache-2.0
#include "record/also/event_file.hpp"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace trireme::record {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string from_numbers(int first, int step) {
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(first + i * step);
  return bytes;
}

/// Source of the values: RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, HasTheKnownAnswers) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(from_numbers(0, 1)), 0x46DD794EU);
  EXPECT_EQ(crc32c(from_numbers(31, -1)), 0x113FDB5CU);
}

TEST(Crc32c, IsMaskedByARotationAndASum) {
  const std::uint32_t crc = 0xE3069283U;
  EXPECT_EQ(masked_crc32c("123456789"), ((crc >> 15U) | (crc << 17U)) + 0xA282EAD8U);
}

/// By hand: 0x18 = 24 bytes of data; 09 wall_time, 1a string of 0x0d bytes.
TEST(EventFile, BeginsWithTheVersion) {
  EXPECT_EQ(hex(version_event(0)),
            "1800000000000000"
            "a37f4b22"
            "090000000000000000"
            "1a0d627261696e2e4576656e743a32"
            "eedf28a3");
}

/// By hand: step 3, and in the summary of 0x0d bytes one value of 0x0b bytes: tag "loss", 1.5.
TEST(EventFile, HoldsAScalar) {
  const std::vector<std::pair<std::string, float>> scalars = {{"loss", 1.5F}};
  EXPECT_EQ(hex(scalars_event(1, 3, scalars)),
            "1a00000000000000"
            "129bd82d"
            "09000000000000f03f"
            "1003"
            "2a0d0a0b0a046c6f7373150000c03f"
            "e7aebd4f");
}

/// By hand: 09 wall_time, 10 step 300 as the varint ac 02, 3a session_log of 2 bytes: 08 01.
TEST(EventFile, MarksARestart) {
  const std::string record = restart_event(0, 300);
  const std::string data = record.substr(12, record.size() - 16);
  EXPECT_EQ(hex(data), "09000000000000000010ac023a020801");
  EXPECT_EQ(record, framed(data));
}

TEST(EventFile, TakesManyScalarsLongLengthsAndNoNumbers) {
  const std::string tag(200, 't');
  const std::vector<std::pair<std::string, float>> scalars = {
      {tag, std::numeric_limits<float>::infinity()},
      {"n", std::numeric_limits<float>::quiet_NaN()}};
  const std::string record = scalars_event(0, 1, scalars);
  // 200 = c8 01; the value is of 3 + 200 + 5 = 208 = d0 01 bytes; the second of 8; together 221.
  EXPECT_EQ(hex(record.substr(12 + 9 + 2, 9)), "2add010ad0010ac801");
  EXPECT_EQ(hex(record.substr(record.size() - 4 - 15)).substr(0, 30),
            "150000807f0a080a016e150000c07f");
}

}  // namespace
}  // namespace trireme::record
