// SPDX-License-Identifier: Apache-2.0
// Reads ranges of elements from the rank files of a checkpoint, written by any number of ranks. It
// reads only the pieces that contain them; the manifest states their offsets.
//
// A piece that is read completely is compared with its hash at once. If only a part is needed, the
// caller adds up the hashes over all ranks that read it (load_checkpoint), or reads it
// completely.
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

  /// The number of a state. Throws UserError when the checkpoint does not hold it.
  [[nodiscard]] std::size_t state(const std::string& name) const;

  /// Fills `data` with the elements from `begin` on and returns the sum of their element hashes, as
  /// stored. Converts between fp32 and bf16. Throws UserError when a piece that is read whole does
  /// not match its hash, or elements are in no piece.
  std::uint64_t read(std::size_t state, std::size_t parameter, std::int64_t begin, View data);

  /// Throws UserError when the piece does not match its hash.
  void check(const Piece& piece);
  /// Of its bytes as they are, read in blocks: Piece::hash, unless it is damaged.
  [[nodiscard]] std::uint64_t hash_of(const Piece& piece);

 private:
  /// Elements [begin, begin + data.elements) of the parameter, which are in the piece, unchecked.
  std::uint64_t read_part(const Piece& piece, std::int64_t begin, View data);
  [[noreturn]] void refuse(const Piece& piece) const;
  const files::InputFile& file(std::uint32_t rank);

  const std::string& directory_;
  const Manifest& manifest_;
  std::map<std::uint32_t, files::InputFile> files_;
  std::vector<std::byte> block_;
};

/// Throws UserError, naming the file and what to do, when a rank file of the checkpoint in
/// `directory` is missing, has another size, or holds another frame (rank_file.hpp) than the
/// manifest states. Of `ranks` ranks that call it, each looks at its share of the files.
void check_rank_files(const std::string& directory,
                      const Manifest& manifest,
                      int rank = 0,
                      int ranks = 1);

struct CheckpointDamage {
  std::string file;  ///< its path
  std::string text;  ///< "master/h.0.mlp.fc.weight, elements [0, 640), does not match its checksum"
  /// The system could not read it, so what it holds is not known.
  bool unreadable = false;
};

/// Reads every byte of a checkpoint and reports all damage; a load reports only the first: the
/// manifest against its own hash; then, of every rank file, its size, each piece and what is between
/// the pieces. Empty: every byte is as it was written. One process; a run may write other
/// checkpoints meanwhile.
std::vector<CheckpointDamage> damage_of(const std::string& directory);

}  // namespace trireme::record
