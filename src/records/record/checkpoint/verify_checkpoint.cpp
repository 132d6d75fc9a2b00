// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/verify_checkpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/manifest.hpp"
#include "record/checkpoint/piece_reader.hpp"
#include "record/checkpoint/rank_file.hpp"

namespace trireme::record {
namespace {

/// Does `look`; what it throws is damage of `file`.
template <class Look>
void note(std::vector<CheckpointDamage>& found, const std::string& file, Look&& look) {
  try {
    look();
  } catch (const UserError& error) {
    for (const Diagnostic& finding : error.findings())
      found.push_back({finding.place.file.empty() ? file : finding.place.file, finding.text});
  } catch (const StorageError& error) {
    found.push_back({file, error.what(), true});
  }
}

void look_at_file(const std::string& directory,
                  const Manifest& manifest,
                  std::size_t rank,
                  std::vector<CheckpointDamage>& found) {
  const std::string path = directory + "/" + rank_file(static_cast<int>(rank));
  bool there = false;
  note(found, path, [&] {
    const std::string problem = file_problem(directory, manifest, rank);
    there = problem.empty();
    if (!there)
      found.push_back({path, problem});
  });
  if (!there)
    return;
  PieceReader reader(directory, manifest);
  std::vector<Extent> data;
  for (const Piece& piece : manifest.pieces) {
    if (piece.rank != rank)
      continue;
    const SavedState& state = manifest.states[piece.state];
    data.push_back(
        {piece.offset, piece.count * static_cast<std::int64_t>(size_bytes(state.dtype))});
    note(found, path, [&] {
      if (reader.hash_of(piece) != piece.hash)
        found.push_back({path, fmt::format("{}/{}, elements [{}, {}), does not match its checksum",
                                           state.name, manifest.parameters[piece.parameter].name,
                                           piece.begin, piece.begin + piece.count)});
    });
  }
  note(found, path, [&] {
    if (frame_hash(files::InputFile(path), std::move(data)) != manifest.file_frames[rank])
      found.push_back({path, "the bytes between its pieces do not match their checksum"});
  });
}

}  // namespace

std::vector<CheckpointDamage> damage_of(const std::string& directory) {
  std::vector<CheckpointDamage> found;
  note(found, directory, [&] {
    const Manifest manifest = read_manifest(directory);
    if (const std::string problem = name_problem(directory, manifest.facts.step); !problem.empty())
      found.push_back({directory, problem});
    for (std::size_t rank = 0; rank < manifest.file_bytes.size(); ++rank)
      look_at_file(directory, manifest, rank, found);
  });
  return found;
}

}  // namespace trireme::record
