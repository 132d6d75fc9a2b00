// SPDX-License-Identifier: Apache-2.0
// The part of a checkpoint's manifest that one rank needs. Rank 0 reads the manifest and broadcasts
// it: first the head (facts, parameters, states, files), then the pieces in blocks, of which every
// rank keeps its own. So the file is opened once, and the memory of a rank does not grow with the
// number of ranks that wrote the checkpoint, except for 16 bytes per file.
//
// 1. A rank keeps the pieces that contain an element it needs, and those of the files that it
//    checks.
// 2. Rank f modulo the number of ranks checks file f: its size, and what HDF5 wrote into it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/manifest.hpp"

namespace trireme::record {

struct ManifestShare {
  /// Its pieces are this rank's, in order; all else is whole.
  Manifest manifest;
  /// [state · parameters + parameter]: of all pieces, kept or not.
  std::vector<std::uint64_t> content_hashes;
  std::vector<std::int64_t> stored_elements;
  std::vector<std::uint32_t> files;  ///< that this rank checks
};

/// Collective. `whole` counts on the first rank only.
ManifestShare share_manifest(Manifest whole,
                             std::span<const MutableSlab> wanted,
                             comm::World& world);

/// Collective. The sums over all ranks modulo 2^64, as hashes of elements add up.
std::vector<std::uint64_t> sums_modulo(std::span<const std::uint64_t> values, comm::World& world);

/// Throws UserError, naming the file and what to do, when one of `files` of the checkpoint in
/// `directory` is missing, has another size, or holds another frame (rank_file.hpp) than the
/// manifest states. `manifest` holds all pieces of those files.
void check_rank_files(const std::string& directory,
                      const Manifest& manifest,
                      std::span<const std::uint32_t> files);

}  // namespace trireme::record
