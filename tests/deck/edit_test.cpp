// SPDX-License-Identifier: Apache-2.0
// Decks in several layouts with keys changed and added: all other text stays unchanged where
// possible.
#include "deck/edit.hpp"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deck/deck.hpp"
#include "deck/values.hpp"

namespace trireme::deck {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Edit, ReplacesAValueInItsPlace) {
  EXPECT_THAT(with_values("batch:\n  sequences: 8   # all\n  micro_sequences: 2  # one\nrun: {}\n",
                          {{"batch.micro_sequences", "16"}}),
              Optional(std::string("batch:\n  sequences: 8   # all\n  micro_sequences: 16  # one\n"
                                   "run: {}\n")));
  EXPECT_THAT(with_values("batch: {sequences: 8, micro_sequences: 2}", {{"batch.sequences", "4"}}),
              Optional(std::string("batch: {sequences: 4, micro_sequences: 2}")));
  EXPECT_THAT(with_values("parallel: {transport: \"mpi\"}\n", {{"parallel.transport", "auto"}}),
              Optional(std::string("parallel: {transport: auto}\n")));
}

TEST(Edit, KeepsReferences) {
  EXPECT_THAT(with_values("run: {seed: {array}, name: a${X}, steps: 3}", {{"run.steps", "4"}}),
              Optional(std::string("run: {seed: {array}, name: a${X}, steps: 4}")));
}

TEST(Edit, ReplacesAMap) {
  EXPECT_THAT(with_values("model: {recompute: {memory: 2 GiB}, layers: 2} # small\n",
                          {{"model.recompute", "block"}}),
              Optional(std::string("model: {recompute: block, layers: 2} # small\n")));
  EXPECT_THAT(
      with_values("model:\n  recompute: {memory: 2 GiB}  # of each\n  layers: 2\n",
                  {{"model.recompute", "[block, none]"}}),
      Optional(std::string("model:\n  recompute: [block, none]  # of each\n  layers: 2\n")));
  EXPECT_THAT(with_values("model:\n  recompute:\n    memory: 2 GiB\n  layers: 2\n",
                          {{"model.recompute", "gelu"}}),
              Optional(std::string("model:\n  recompute: gelu\n  layers: 2\n")));
  EXPECT_THAT(with_values("model: {recompute: block}\n", {{"model.recompute", "{memory: 2 GiB}"}}),
              Optional(std::string("model: {recompute: {memory: 2 GiB}}\n")));
}

TEST(Edit, AddsAKeyToItsSection) {
  EXPECT_THAT(with_values("batch:\n    # of it\n    sequences: 8 # eight\n\n# next\nrun: {}\n",
                          {{"batch.micro_sequences", "2"}}),
              Optional(std::string("batch:\n    # of it\n    sequences: 8 # eight\n"
                                   "    micro_sequences: 2\n\n# next\nrun: {}\n")));
  EXPECT_THAT(with_values("batch:\n  sequences: 8", {{"batch.micro_sequences", "2"}}),
              Optional(std::string("batch:\n  sequences: 8\n  micro_sequences: 2\n")));
  EXPECT_THAT(with_values("model: {layers: 2} # small\n", {{"model.recompute", "block"}}),
              Optional(std::string("model: {layers: 2, recompute: block} # small\n")));
  EXPECT_THAT(with_values("model: {}\n", {{"model.recompute", "block"}}),
              Optional(std::string("model: {recompute: block}\n")));
  EXPECT_THAT(with_values("model:\nrun: {}\n", {{"model.recompute", "block"}}),
              Optional(std::string("model: {recompute: block}\nrun: {}\n")));
}

TEST(Edit, AddsAKeyBesideLists) {
  EXPECT_THAT(with_values("data:\n  train:\n    text: [a]\nrun: {}\n", {{"data.rows", "stream"}}),
              Optional(std::string("data:\n  train:\n    text: [a]\n  rows: stream\nrun: {}\n")));
  EXPECT_THAT(with_values("data: {train: {text: [a]}}\n", {{"data.rows", "stream"}}),
              Optional(std::string("data: {train: {text: [a]}, rows: stream}\n")));
}

TEST(Edit, AddsASection) {
  EXPECT_THAT(with_values("run: {seed: 1}",
                          {{"parallel.bucket_elements", "100"}, {"parallel.transport", "mpi"}}),
              Optional(std::string("run: {seed: 1}\nparallel: {bucket_elements: 100, transport: "
                                   "mpi}\n")));
  EXPECT_THAT(with_values("{run: {seed: 1}}\n", {{"batch.sequences", "3"}}),
              Optional(std::string("{run: {seed: 1}, batch: {sequences: 3}}\n")));
  // A section after the end of the document would start a second document.
  EXPECT_THAT(with_values("---\nrun: {seed: 1}\n...\n", {{"batch.sequences", "3"}}),
              Optional(std::string("---\nrun: {seed: 1}\nbatch: {sequences: 3}\n...\n")));
}

TEST(Edit, ListsGiveWay) {
  EXPECT_THAT(with_values("parallel:\n  bucket_boundaries:\n    - a\n    - b\n  transport: mpi\n",
                          {{"parallel.bucket_boundaries", "[]"}}),
              Optional(std::string("parallel:\n  bucket_boundaries: []\n  transport: mpi\n")));
  EXPECT_THAT(with_values("parallel: {bucket_boundaries: [a,\n  b], transport: mpi}\n",
                          {{"parallel.bucket_boundaries", "[c]"}}),
              Optional(std::string("parallel: {bucket_boundaries: [c], transport: mpi}\n")));
}

/// A sample's prompt, a block scalar, is the last entry of its section.
TEST(Edit, LeavesBlocksOfTextWhole) {
  const std::string deck = "sample:\n  tokens: 3\n  prompt: |\n    a\n    b\nrun: {seed: 1}\n";
  EXPECT_THAT(with_values(deck, {{"sample.every_steps", "5"}}),
              Optional(std::string("sample:\n  every_steps: 5\n  tokens: 3\n  prompt: |\n    a\n"
                                   "    b\nrun: {seed: 1}\n")));
  EXPECT_FALSE(with_values(deck, {{"sample.prompt", "x"}}));  // a block scalar is not replaced
}

TEST(Edit, NoValuesNoChange) {
  EXPECT_THAT(with_values("run: {seed: 1}   # as it was", {}),
              Optional(std::string("run: {seed: 1}   # as it was")));
}

/// For every deck that we ship and every set of changed keys: these keys have the new values, all
/// others keep theirs, and no comment is lost.
TEST(Edit, DecksKeepTheirOtherKeysAndComments) {
  const std::vector<KeyValue> edits = {{"batch.micro_sequences", "1"},
                                       {"parallel.bucket_elements", "12345"},
                                       {"parallel.bucket_boundaries", "[]"},
                                       {"parallel.transport", "mpi"},
                                       {"model.recompute", "block"}};
  for (const char* name : {"quickstart", "gpt2-124m", "llama-small", "recipe-llama-muon"}) {
    std::ifstream file(std::string(TRIREME_INPUT) + "/" + name + ".yaml");
    std::stringstream bytes;
    bytes << file.rdbuf();
    const Deck before = parse(bytes.str(), name, {});
    for (unsigned chosen = 1; chosen < 1U << edits.size(); ++chosen) {
      std::vector<KeyValue> values;
      std::vector<std::string> overrides;
      for (std::size_t i = 0; i < edits.size(); ++i)
        if ((chosen >> i & 1U) != 0) {
          values.push_back(edits[i]);
          overrides.push_back(edits[i].path + "=" + edits[i].value);
        }
      const auto after = with_values(bytes.str(), values);
      ASSERT_TRUE(after) << name << " " << chosen;
      EXPECT_EQ(values_of(parse(*after, name, {}).config),
                values_of(parse(bytes.str(), name, overrides).config))
          << *after;
      for (const std::string& line : lines_of(bytes.str()))
        if (const auto comment = line.find('#'); comment != std::string::npos) {
          EXPECT_THAT(*after, HasSubstr(line.substr(comment)));
        }
      EXPECT_EQ(with_values(*after, values), after);
    }
  }
}

}  // namespace
}  // namespace trireme::deck
