// SPDX-License-Identifier: Apache-2.0
// What one rank needs of a checkpoint's manifest. The first rank reads the manifest and broadcasts
// it: the head (facts, parameters, states, files) at once, the pieces in blocks, of which every
// rank keeps its own. So a file that all ranks need is opened once, and what a rank holds does not
// grow with the number of ranks that wrote the checkpoint, but for 16 bytes per file.
//
// 1. A rank keeps the pieces that hold an element it needs, and those of the files that it checks.
// 2. File f is checked by rank f modulo the number of ranks, also where others read it: its size,
//    and what HDF5 wrote into it.
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
  std::vector<std::uint32_t> files;  ///< that this rank checks
};

/// Collective. `whole` counts on the first rank only.
ManifestShare share_manifest(Manifest whole,
                             std::span<const MutableSlab> wanted,
                             comm::World& world);

/// Throws UserError, naming the file and what to do, when one of `files` of the checkpoint in
/// `directory` is missing, has another size, or holds another frame (rank_file.hpp) than the
/// manifest states. `manifest` holds all pieces of those files.
void check_rank_files(const std::string& directory,
                      const Manifest& manifest,
                      std::span<const std::uint32_t> files);

}  // namespace trireme::record
