// SPDX-License-Identifier: Apache-2.0
#include "cli/check_command.hpp"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deck/bad_deck.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

TEST(CheckCommand, SaysWhatTheDeckDoes) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed(
      "run: {directory: runs/a, steps: 100}\n"
      "model: {layers: 2, heads: 2, channels: 16, context: 8}\n"
      "batch: {sequences: 12, micro_sequences: 3}\n");
  const std::string text = check_command(path, {"run.steps=50"}, {.ranks = 2});
  EXPECT_THAT(text, HasSubstr("no mistakes found for 2 ranks\n"));
  EXPECT_THAT(text, HasSubstr("2 ranks x 2 micro-steps of 3 sequences"));
  EXPECT_THAT(text, HasSubstr("50 steps, 4.80 k tokens, into runs/a"));
}

}  // namespace
}  // namespace trireme::cli
