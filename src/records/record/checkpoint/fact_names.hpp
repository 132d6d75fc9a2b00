// SPDX-License-Identifier: Apache-2.0
// The names of facts that a checkpoint holds (CheckpointFacts::more).
#pragma once

namespace trireme::record {

inline constexpr const char* data_hash_fact = "data_hash";
inline constexpr const char* run_id_fact = "run_id";
/// The position in the data (batches::Dataset::position).
inline constexpr const char* data_position_fact = "data_position";
/// The hash of the tokenizer, or unknown_tokenizer.
inline constexpr const char* tokenizer_fact = "tokenizer";
inline constexpr const char* unknown_tokenizer = "unknown";
/// Where the first weights came from, their format and their hash (weights::Origin). They stay with
/// the run.
inline constexpr const char* origin_path_fact = "initial_weights";
inline constexpr const char* origin_format_fact = "initial_weights_format";
inline constexpr const char* origin_hash_fact = "initial_weights_hash";

}  // namespace trireme::record
