// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/manifest_share.hpp"

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "record/checkpoint/piece_reader.hpp"
#include "record/checkpoint/rank_file.hpp"
#include "record/checkpoint_cases.hpp"

#include "support/scratch_directory.hpp"
#include "support/sequential_ranks.hpp"

namespace trireme::record {
namespace {

std::string saved_by(int ranks, const test::ScratchDirectory& scratch) {
  std::string directory;
  test::SequentialRanks(ranks).run([&](comm::World& world) {
    const auto saved = save_small(scratch.path(), 5, world);
    if (world.rank() == 0)
      directory = saved.directory;
  });
  return directory;
}

TEST(ManifestShare, IsReadByTheFirstRankAndHoldsWhatARankWants) {
  const test::ScratchDirectory scratch;
  const std::string directory = saved_by(8, scratch);
  const Manifest whole = read_manifest(directory);
  for (const int ranks : {1, 3, 8}) {
    std::atomic<std::size_t> kept = 0, files = 0;
    test::SequentialRanks(ranks).run([&](comm::World& world) {
      const layout::Plan plan = plan_for(ranks);
      Owned owned(plan, world.rank());
      const auto wanted = owned.wanted();
      const ManifestShare share =
          share_manifest(world.rank() == 0 ? whole : Manifest{}, wanted, world);
      EXPECT_EQ(share.manifest.facts.deck, whole.facts.deck);
      EXPECT_EQ(share.manifest.facts.model, whole.facts.model);
      EXPECT_EQ(share.manifest.facts.next_sample, whole.facts.next_sample);
      EXPECT_EQ(share.manifest.file_bytes, whole.file_bytes);
      EXPECT_EQ(share.manifest.file_frames, whole.file_frames);
      for (std::size_t s = 0; s < whole.states.size(); ++s)
        for (std::size_t p = 0; p < whole.parameters.size(); ++p)
          EXPECT_EQ(share.content_hashes[s * whole.parameters.size() + p],
                    whole.content_hash(s, p));
      PieceReader reader(directory, share.manifest);
      for (const MutableSlab& slab : wanted)
        static_cast<void>(
            reader.read(reader.state(slab.state), at(slab.parameter), slab.begin, slab.data));
      owned.expect_filled();
      check_rank_files(directory, share.manifest, share.files);
      kept += share.manifest.pieces.size();
      files += share.files.size();
    });
    EXPECT_EQ(files, 8U) << ranks;
    // Each piece once where its file is checked, and once where it is wanted; a piece is wanted by
    // one rank more for each of the ranks' boundaries, at most.
    EXPECT_LE(kept, 2 * whole.pieces.size() +
                        static_cast<std::size_t>(ranks) * whole.parameters.size() * states.size())
        << ranks;
  }
}

TEST(PieceReader, ReadsTheBytesThatAreWantedAndNoOthers) {
  const test::ScratchDirectory scratch;
  const std::string directory = saved_by(1, scratch);
  const Manifest manifest = read_manifest(directory);
  const Piece& piece = manifest.pieces_of(1, 0).front();
  ASSERT_GT(piece.count, 100);
  // Nothing is left of the file after the first hundred elements of the piece.
  std::filesystem::resize_file(directory + "/" + rank_file(0),
                               static_cast<std::uintmax_t>(piece.offset + 400));
  PieceReader reader(directory, manifest);
  std::vector<float> values(100);
  reader.read(1, 0, 40, View(reinterpret_cast<std::byte*>(values.data()), 60, DType::f32));
  EXPECT_EQ(values[0], value_of(1, ParameterIndex(0), 40));
  EXPECT_EQ(values[59], value_of(1, ParameterIndex(0), 99));
  EXPECT_THROW(
      reader.read(1, 0, 41, View(reinterpret_cast<std::byte*>(values.data()), 60, DType::f32)),
      StorageError);
}

}  // namespace
}  // namespace trireme::record
