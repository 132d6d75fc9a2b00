// SPDX-License-Identifier: Apache-2.0
// Reads and validates the header of a safetensors file. Format: eight bytes with the header's
// length, the header as JSON, the data. Source: safetensors README and safetensors/src/tensor.rs.
//
// Files may be damaged or malicious. These rules are checked:
//
// 1. The header has at most 100,000,000 bytes and is one JSON object without a key twice; each
//    entry has exactly dtype, shape and data_offsets; the values of __metadata__ are strings.
// 2. The product of a shape times its dtype's size is the length between its offsets, computed
//    without overflow.
// 3. Sorted by offset, the tensors cover the data without gaps or overlaps, up to the end of the
//    file.
//
// All errors are reported at once, each with the file and the tensor's name. Every dtype of the
// format is accepted here; the reader of a tensor decides whether it supports the dtype.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "files/descriptor.hpp"

namespace trireme::weights {

inline constexpr std::int64_t most_header_bytes = 100'000'000;

struct SafetensorsEntry {
  std::string name = {};
  std::string dtype = {};                ///< as in the file: "F32", "F8_E4M3", …
  std::vector<std::int64_t> shape = {};  ///< row-major
  std::int64_t begin = 0, end = 0;       ///< bytes of the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  ///< in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Throws UserError if it is not a safetensors file, StorageError if it cannot be read.
SafetensorsHeader read_safetensors(const files::InputFile& file);

/// "[768, 2304]"
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace trireme::weights
