// SPDX-License-Identifier: Apache-2.0
// Records of a TensorBoard event file, made by hand: a frame, and in it an Event of Protocol
// Buffers. Nothing of TensorFlow or of a protobuf library is needed to write them.
//
//   frame   u64 length, u32 masked CRC-32C of these 8 bytes, the data, u32 masked CRC-32C of them;
//           little-endian
//   Event   1 wall_time (double), 2 step (varint), 3 file_version (string), 5 summary (message),
//           7 session_log (message: 1 status, START is 1)
//   Summary 1 value, repeated: 1 tag (string), 2 simple_value (float)
//
// Source: tensorflow tsl/lib/io/record_writer.h and tensorboard compat/proto/event.proto and
// summary.proto (the layout, not the code); RFC 3720 appendix B.4 (CRC-32C).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace trireme::record {

/// CRC-32C (Castagnoli): 0xE3069283 of "123456789".
std::uint32_t crc32c(std::string_view bytes);
/// As frames carry it, so that a CRC of data that hold CRCs stays one.
std::uint32_t masked_crc32c(std::string_view bytes);

/// A whole record around `data`.
std::string framed(std::string_view data);

/// The first record of every file. `wall_time` in seconds since 1970.
std::string version_event(double wall_time);
/// An event that makes a reader drop what earlier files hold of this step and later ones.
std::string restart_event(double wall_time, std::int64_t step);
/// Tag and value of each scalar of a step.
std::string scalars_event(double wall_time,
                          std::int64_t step,
                          std::span<const std::pair<std::string, float>> scalars);

}  // namespace trireme::record
