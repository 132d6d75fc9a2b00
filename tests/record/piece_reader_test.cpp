// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/piece_reader.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "record/checkpoint/manifest.hpp"
#include "record/checkpoint_cases.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

TEST(PieceReader, ReadsTheBytesThatAreWantedAndNoOthers) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  const std::string directory = save_small(scratch.path(), 5, *world).directory;
  const Manifest manifest = read_manifest(directory);
  const Piece& piece = manifest.pieces_of(1, 0).front();
  ASSERT_GT(piece.count, 100);
  // Truncates the file after the first hundred elements of the piece.
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
