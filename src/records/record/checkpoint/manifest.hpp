// SPDX-License-Identifier: Apache-2.0
// A checkpoint's manifest.h5: the content of the rank files and the run's identity. Format 2.2, see
// docs/reference/checkpoint.md; self_hash is the XXH64 of everything else (fingerprint()).
//
// Next to it is manifest.xxh64, the XXH64 of its bytes in the format of `xxhsum -c`. So a hash
// covers every byte: this one the manifest, the hashes of pieces the data of a rank file, and its
// frame hash the rest of that file. HDF5 never opens a manifest that does not match.
//
// 1. A manifest that was read or is about to be written is complete: for every state, the pieces of
//    each parameter tile [0, elements) without overlap, or there are none. Those of a partial state
//    may end earlier.
// 2. Pieces are sorted by (state, parameter, begin).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/dtype.hpp"

#include "record/checkpoint/checkpoint.hpp"

namespace trireme::record {

/// A contiguous run of one parameter's elements in one rank's file.
struct Piece {
  std::uint32_t state = 0;
  std::uint32_t parameter = 0;
  std::uint32_t rank = 0;
  std::uint32_t zero = 0;  ///< explicit padding of the row
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::uint64_t hash = 0;
  std::int64_t offset = 0;  ///< of its first byte in the rank's file
};
static_assert(sizeof(Piece) == 48);

struct SavedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;

  auto fields() { return std::tie(name, shape, elements); }
};

struct SavedState {
  std::string name;
  DType dtype = DType::f32;
  bool operator==(const SavedState&) const = default;
  auto fields() { return std::tie(name, dtype); }
};

struct Manifest {
  CheckpointFacts facts;
  std::string date_and_time = {};  ///< when it was written, UTC; set by reading
  std::vector<SavedParameter> parameters;
  std::vector<SavedState> states;
  std::vector<std::int64_t> file_bytes;    ///< by rank
  std::vector<std::uint64_t> file_frames;  ///< by rank: frame_hash() of its file
  std::vector<Piece> pieces;

  [[nodiscard]] int ranks() const { return static_cast<int>(file_bytes.size()); }
  /// The pieces of one parameter in one state; empty if the state does not contain it.
  [[nodiscard]] std::span<const Piece> pieces_of(std::size_t state, std::size_t parameter) const;
  [[nodiscard]] std::uint64_t content_hash(std::size_t state, std::size_t parameter) const;
  [[nodiscard]] std::int64_t stored_elements(std::size_t state, std::size_t parameter) const;
  /// Sorts the pieces. Returns "" if rule 1 holds, else what is wrong.
  [[nodiscard]] std::string complete();
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// Fields that load_checkpoint sends to other ranks: not the tokenizer, which may be large.
  auto fields() {
    return std::tie(facts.step, facts.next_sample, facts.seed, facts.model, facts.more, facts.deck,
                    parameters, states, file_bytes, file_frames, pieces);
  }
};

/// "rank-00003.h5"
std::string rank_file(int rank);
/// Name of a rank file's dataset for a range of a parameter if an earlier range is in that file.
std::string name_of_later_range(const std::string& parameter, std::int64_t begin);
inline constexpr const char* manifest_file = "manifest.h5";
inline constexpr const char* manifest_sum_file = "manifest.xxh64";
/// The expected content of manifest_sum_file for the manifest in `directory`.
std::string manifest_sum(const std::string& directory);

/// Throws StorageError.
void write_manifest(const std::string& directory, const Manifest& manifest);
/// Opens no rank file. Throws UserError if it is missing, damaged or of another version.
Manifest read_manifest(const std::string& directory);
/// "" if the file of `rank` exists with the stated size, else what is wrong. Throws StorageError.
std::string file_problem(const std::string& directory, const Manifest& manifest, std::size_t rank);
/// The first such problem of any rank file, or "".
std::string missing_files(const std::string& directory, const Manifest& manifest);

}  // namespace trireme::record
