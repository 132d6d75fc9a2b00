// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: which tensor lies where. Format: eight bytes with
// the header's length, the header as JSON, the data. Source: safetensors README and
// safetensors/src/tensor.rs.
//
// A file from outside may lie. What is accepted:
//
// 1. The header has at most 100,000,000 bytes and is one JSON object without a key twice; each
//    entry has dtype, shape and data_offsets and nothing else, __metadata__ is texts.
// 2. The product of a shape times its dtype's size is the length between its offsets, computed
//    without overflow.
// 3. Sorted by offset the tensors tile the data: no hole, no overlap, and they end with the file.
//
// All that is wrong is reported at once, each finding with the file and the tensor's name. Every
// dtype of the format may occur; which ones are read is decided where a tensor is wanted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "files/input_file.hpp"

namespace trireme::weights {

inline constexpr std::int64_t most_header_bytes = 100'000'000;
/// Findings about one file beyond these are counted, not listed.
inline constexpr std::size_t most_findings = 100;

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

/// `header` is the JSON alone, of a file of `file_bytes` bytes at `path`. Throws UserError.
SafetensorsHeader parse_safetensors(const std::string& path,
                                    std::string_view header,
                                    std::int64_t file_bytes);

/// Throws UserError for a file that is none, StorageError for one that cannot be read.
SafetensorsHeader read_safetensors(const files::InputFile& file);

/// "[768, 2304]"
std::string shape_text(const std::vector<std::int64_t>& shape);

/// Throws UserError when there are findings; of very many, the first ones and their number.
void throw_findings(std::vector<Diagnostic> findings);

}  // namespace trireme::weights
