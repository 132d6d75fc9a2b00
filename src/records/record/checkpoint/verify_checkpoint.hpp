// SPDX-License-Identifier: Apache-2.0
// Reads every byte of a checkpoint, compares the hashes, and reports all damage; a load reports
// only the first. One process; nothing is changed, and a run may write other checkpoints meanwhile.
#pragma once

#include <string>
#include <vector>

namespace trireme::record {

struct CheckpointDamage {
  std::string file;  ///< its path
  std::string text;  ///< "master/h.0.mlp.fc.weight, elements [0, 640), does not match its checksum"
  /// The system could not read it, so what it holds is not known.
  bool unreadable = false;
};

/// The manifest against its own hash; then, of every rank file, its size, each piece and what is
/// between the pieces. Empty: every byte is as it was written.
std::vector<CheckpointDamage> damage_of(const std::string& directory);

}  // namespace trireme::record
