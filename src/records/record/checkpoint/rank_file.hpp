// SPDX-License-Identifier: Apache-2.0
// The file that one rank adds to a checkpoint, and what the manifest holds about it.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include "files/descriptor.hpp"
#include "layout/plan.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/manifest.hpp"

namespace trireme::record {

/// What one rank wrote: states by name, then its pieces with its own state numbers.
struct Part {
  int rank = 0;
  std::vector<SavedState> states;
  std::vector<Piece> pieces;
  std::int64_t file_bytes = 0;
  std::uint64_t frame = 0;  ///< frame_hash() of the file
  double seconds = 0;       ///< from the first call to the end of the fsync
  /// The first (state, parameter) with an element that is not finite; numbers as in the pieces, or
  /// -1. Found on the way, while the elements are hashed.
  std::int64_t bad_state = -1, bad_parameter = -1;

  auto fields() {
    return std::tie(rank, states, pieces, file_bytes, frame, seconds, bad_state, bad_parameter);
  }
};

/// Bytes of a file that are a piece's data.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
};
/// XXH64 of the other bytes of a rank file: what HDF5 wrote into it. Throws StorageError.
std::uint64_t frame_hash(const files::InputFile& file, std::vector<Extent> data);

/// HDF5 lays the file out and closes it; then the slabs' bytes go into the places it gave them, in
/// blocks that hold pieces and what HDF5 wrote between them, so that the disk gets few, large
/// writes however small the pieces are. A block is put together and hashed while the one before is
/// written. On the disk when it returns. When `stop` is asked for, throws StorageError between two
/// blocks.
Part write_rank_file(const std::string& path,
                     int rank,
                     const layout::Plan& plan,
                     std::span<const Slab> slabs,
                     const std::stop_token& stop);

}  // namespace trireme::record
