// SPDX-License-Identifier: Apache-2.0
// Token shards in the format of llm.c (dev/data/data_common.py there): a header of 256 int32, then
// the tokens, nothing after them. Header words: magic, version, number of tokens, zeros.
//
//     magic 20240520, version 1: uint16 tokens (GPT-2's vocabulary)
//     magic 20240801, version 7: uint32 tokens (Llama 3's)
//
// A file's size must be 1024 bytes + tokens exactly. Shards may mix both kinds; documents may run
// over the border of two shards, which are one stream here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/token_stream.hpp"

namespace trireme::data {

/// The hashes of all shards' blocks (segment.hpp), in order: what rank 0 read once is what every
/// rank must read.
using ShardSums = std::vector<std::uint64_t>;

/// Opens the shards in the given order. Throws UserError with a finding for every file that is not
/// a whole shard, StorageError for one that cannot be read or is not the one that gave `sums`. The
/// tokens are trusted to be below `vocabulary` until read() meets one that is not.
std::unique_ptr<TokenStream> open_shards(const std::vector<std::string>& paths,
                                         std::int64_t vocabulary,
                                         const ShardSums& sums);

/// Reads every token once. Throws UserError naming, for each shard, the first token at or above
/// `vocabulary`.
ShardSums check_shards(const std::vector<std::string>& paths, std::int64_t vocabulary);

}  // namespace trireme::data
