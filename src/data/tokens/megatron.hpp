// SPDX-License-Identifier: Apache-2.0
// The index of Megatron's token files: X.idx next to X.bin, little-endian.
//
//     "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64 documents,
//     i32 length of each sequence, i64 place of each sequence in X.bin (bytes),
//     i64 the first sequence of each document (`documents` entries; the last is `sequences`),
//     then, in some files, i8 mode of each sequence
//
// Source: NVIDIA/Megatron-LM megatron/core/datasets/indexed_dataset.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::tokens {

struct MegatronIndex {
  int width = 0;  ///< bytes per token
  std::int64_t tokens = 0;
  std::vector<std::int64_t> documents;  ///< the first token of each
};

/// Where the index of `path` would be: X.idx for X.bin; "" for other names.
std::string megatron_index_of(const std::string& path);

/// Reads and checks the index of a token file of `file_bytes` bytes. "" when all is well, else what
/// is wrong. Throws StorageError when it cannot be read.
std::string read_megatron_index(const std::string& index_path,
                                std::int64_t file_bytes,
                                MegatronIndex& index);

}  // namespace trireme::tokens
