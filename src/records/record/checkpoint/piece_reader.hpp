// SPDX-License-Identifier: Apache-2.0
// Reads ranges of elements from the rank files of a checkpoint, written by any number of ranks. It
// reads only the pieces that contain them; the manifest states their offsets.
//
// A piece that is read completely is verified against its hash at once. Otherwise the caller sums
// the hashes over all ranks that read the piece (load_checkpoint), or reads it completely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/view.hpp"
#include "files/descriptor.hpp"

#include "record/checkpoint/manifest.hpp"

namespace trireme::record {

class PieceReader {
 public:
  /// Both must outlive the reader.
  PieceReader(const std::string& directory, const Manifest& manifest)
      : directory_(directory), manifest_(manifest) {}

  /// The index of a state. Throws UserError if the checkpoint does not contain it.
  [[nodiscard]] std::size_t state(const std::string& name) const;

  /// Fills `data` with elements from `begin` on and returns the sum of their element hashes, as
  /// stored. Converts between fp32 and bf16. Throws UserError if a completely read piece does not
  /// match its hash, or if elements are missing from the checkpoint.
  std::uint64_t read(std::size_t state, std::size_t parameter, std::int64_t begin, View data);

  /// Throws UserError if the piece does not match its hash.
  void check(const Piece& piece);
  /// Hash of its stored bytes, read in blocks; equals Piece::hash unless the piece is damaged.
  [[nodiscard]] std::uint64_t hash_of(const Piece& piece);

 private:
  /// Reads elements [begin, begin + data.elements) of the parameter from `piece`, without a check.
  std::uint64_t read_part(const Piece& piece, std::int64_t begin, View data);
  [[noreturn]] void refuse(const Piece& piece) const;
  const files::InputFile& file(std::uint32_t rank);

  const std::string& directory_;
  const Manifest& manifest_;
  std::map<std::uint32_t, files::InputFile> files_;
  std::vector<std::byte> block_;
};

/// Throws UserError, with the file and what to do, if a rank file of the checkpoint in `directory`
/// is missing, or if its size or frame hash (rank_file.hpp) differs from the manifest. Each of the
/// `ranks` callers checks its share of the files.
void check_rank_files(const std::string& directory,
                      const Manifest& manifest,
                      int rank = 0,
                      int ranks = 1);

struct CheckpointDamage {
  std::string file;  ///< path of the file
  std::string text;  ///< "master/h.0.mlp.fc.weight, elements [0, 640), does not match its checksum"
  bool unreadable = false;  ///< a system error prevented reading it, so its content is unknown
};

/// Reads all bytes of a checkpoint and reports all damage, whereas a load reports only the first.
/// Checks the manifest's own hash, and the size, the pieces and the frame of every rank file. Empty
/// if all bytes are as written. For one process; a run may write other checkpoints meanwhile.
std::vector<CheckpointDamage> damage_of(const std::string& directory);

}  // namespace trireme::record
