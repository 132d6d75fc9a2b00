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

/// What one rank wrote: the states' names, and pieces that refer to them by index.
struct Part {
  int rank = 0;
  std::vector<SavedState> states;
  std::vector<Piece> pieces;
  std::int64_t file_bytes = 0;
  std::uint64_t frame = 0;  ///< frame_hash() of the file
  double seconds = 0;       ///< from the start of writing to the end of the fsync
  /// First (state, parameter), as indices, with an element that is not finite; -1: there is none.
  std::int64_t bad_state = -1, bad_parameter = -1;

  auto fields() {
    return std::tie(rank, states, pieces, file_bytes, frame, seconds, bad_state, bad_parameter);
  }
};

/// A byte range of a file that contains a piece's data.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
};
/// XXH64 of the file's bytes outside of `data`, which HDF5 wrote. Throws StorageError.
std::uint64_t frame_hash(const files::InputFile& file, std::vector<Extent> data);

/// HDF5 creates the file's layout and closes it. Then the file is written in large blocks, each
/// with the slabs' bytes and the bytes of HDF5 between them, so that even small pieces need few
/// writes. One block is composed and hashed while the previous one is written. The file is on disk
/// when this returns. Throws StorageError between two blocks if `stop` is requested.
Part write_rank_file(const std::string& path,
                     int rank,
                     const layout::Plan& plan,
                     std::span<const Slab> slabs,
                     const std::stop_token& stop);

}  // namespace trireme::record
