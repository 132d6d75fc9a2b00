// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "record/checkpoint/manifest.hpp"
#include "record/checkpoint/piece_reader.hpp"
#include "record/checkpoint_cases.hpp"

#include "support/scratch_directory.hpp"
#include "support/sequential_ranks.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

class VerifyCheckpoint : public testing::Test {
 protected:
  VerifyCheckpoint() {
    test::SequentialRanks(2).run(
        [&](comm::World& world) { save_small(scratch_.path(), 7, world); });
  }
  [[nodiscard]] std::string file(const std::string& name) const { return directory_ + "/" + name; }
  static void flip(const std::string& path, std::size_t position) {
    std::string bytes = test::bytes_of(path);
    ASSERT_LT(position, bytes.size());
    bytes[position] = static_cast<char>(bytes[position] ^ 4);
    test::write_bytes(path, bytes);
  }

  const test::ScratchDirectory scratch_;
  const std::string directory_ = scratch_ / "checkpoints/step-00000007";
};

TEST_F(VerifyCheckpoint, FindsNothingInAWholeOne) {
  EXPECT_TRUE(damage_of(directory_).empty());
}

TEST_F(VerifyCheckpoint, FindsABitInEveryByteOfEveryFile) {
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const std::string path = entry.path().string();
    const std::size_t size = fs::file_size(path);
    for (std::size_t at = 0; at < size; at += 1 + size / 97) {
      flip(path, at);
      const auto found = damage_of(directory_);
      ASSERT_FALSE(found.empty()) << path << " byte " << at;
      EXPECT_FALSE(found[0].unreadable);
      flip(path, at);
    }
  }
  EXPECT_TRUE(damage_of(directory_).empty());
}

TEST_F(VerifyCheckpoint, NamesEveryDamagedPieceAndFileAtOnce) {
  const Manifest manifest = read_manifest(directory_);
  std::vector<testing::Matcher<CheckpointDamage>> expected;
  for (const std::size_t rank : {0U, 1U}) {
    for (const std::size_t number : {rank, manifest.pieces.size() - 1 - rank}) {
      const Piece& piece = manifest.pieces[number];
      if (piece.rank != rank)
        continue;
      flip(file(rank_file(static_cast<int>(rank))), static_cast<std::size_t>(piece.offset));
      expected.push_back(AllOf(
          Field(&CheckpointDamage::file, file(rank_file(static_cast<int>(rank)))),
          Field(&CheckpointDamage::text, AllOf(HasSubstr(manifest.states[piece.state].name + "/" +
                                                         manifest.parameters[piece.parameter].name),
                                               HasSubstr("does not match its checksum")))));
    }
  }
  ASSERT_GE(expected.size(), 2U);
  EXPECT_THAT(damage_of(directory_), testing::ElementsAreArray(expected));
}

TEST_F(VerifyCheckpoint, ReportsWhatIsMissingCutOrRenamed) {
  fs::resize_file(file("rank-00000.h5"), 100);
  fs::remove(file("rank-00001.h5"));
  EXPECT_THAT(damage_of(directory_),
              ElementsAre(Field(&CheckpointDamage::text, HasSubstr("has 100 bytes instead of")),
                          Field(&CheckpointDamage::text, HasSubstr("is missing"))));
  fs::remove(file("manifest.h5"));
  EXPECT_THAT(damage_of(directory_),
              ElementsAre(Field(&CheckpointDamage::text, HasSubstr("no manifest.h5"))));
}

TEST_F(VerifyCheckpoint, ACopyUnderAnotherStepIsNotWell) {
  const std::string copy = scratch_ / "checkpoints/step-00000009";
  fs::copy(directory_, copy);
  EXPECT_THAT(damage_of(copy),
              ElementsAre(Field(&CheckpointDamage::text, HasSubstr("was renamed or copied"))));
}

}  // namespace
}  // namespace trireme::record
