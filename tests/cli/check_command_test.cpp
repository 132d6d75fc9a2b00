// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/control/world.hpp"

#include "cli/deck_reports.hpp"
#include "deck/bad_deck.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

TEST(CheckCommand, SumsUpTheDeck) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed(
      "run: {directory: runs/a, steps: 100}\n"
      "model: {layers: 2, heads: 2, channels: 16, context: 8}\n"
      "batch: {sequences: 12, micro_sequences: 3}\n");
  const std::string text = check_command({path, {"run.steps=50"}}, {.ranks = 2});
  EXPECT_THAT(text, HasSubstr("no mistakes found for 2 ranks\n"));
  EXPECT_THAT(text, HasSubstr("2 ranks x 2 micro-steps of 3 sequences"));
  EXPECT_THAT(text, HasSubstr("50 steps, 4.80 k tokens, into runs/a"));
}

TEST(CheckCommand, WarnsOfKeysThatHaveNoEffect) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed(
      "optimizer: {muon: {momentum: 0.9}, schedule: {kind: constant, final_fraction: 0.1}}\n");
  const std::string text = check_command({path, {"sample.tokens=7"}}, {});
  EXPECT_THAT(text, HasSubstr(path + ":1:30: warning: optimizer.muon.momentum has no effect: "
                                     "optimizer.kind is not muon\n"));
  EXPECT_THAT(text, HasSubstr("command line:1:15: warning: sample.tokens has no effect: "
                              "sample.every_steps is 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("final_fraction"))) << "has the default";
  EXPECT_THAT(check_command({path, {"optimizer.kind=muon"}}, {}), Not(HasSubstr("muon.momentum")));
}

TEST(CheckCommand, PrintsTheValueOfAKeyWithoutQuotes) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed("run: {directory: runs/a, steps: 100}\n");
  for (const auto& [written, text] : {std::pair{"runs/b", "runs/b"},
                                      {"./runs/b", "./runs/b"},
                                      {"\"a b = \\\"c\\\"\"", "a b = \"c\""},
                                      {"\"{{array}}\"", "{array}"},
                                      {"\"7\"", "7"}})
    EXPECT_EQ(value_of({path, {std::string("run.directory=") + written}}, "run.directory", {}),
              std::string(text) + "\n");
  EXPECT_EQ(value_of({path, {}}, "run.steps", {}), "100\n");
}

TEST(CheckCommand, LooksAtFilesAndDirectories) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(directory.path() + "/file") << "x";
  std::ofstream(path) << deck::completed(
      "run: {directory: " + directory.path() + "/file/run, steps: 10}\n" +
      "data: {train: {text: [missing.txt, 'none/*.txt']}, validation: {text: [missing.txt]}, "
      "cache: " +
      directory.path() +
      "/file}\n"
      "evaluate: {sets: [{name: a, every_steps: 1, multiple_choice: missing.jsonl, format: "
      "jsonl}]}\n");
  try {
    check_command({path, {}}, {.ranks = 1});
    FAIL() << "nothing was missed";
  } catch (const UserError& error) {
    const std::string text = error.what();
    for (const char* part : {"data.train.text", "none/*.txt", "data.validation.text", "data.cache",
                             "run.directory", "evaluate.sets[0].multiple_choice"})
      EXPECT_THAT(text, HasSubstr(part));
    EXPECT_EQ(error.findings().size(), 6U) << text;
  }
}

TEST(CheckCommand, NamesFilesNextToMistakesInTheDeck) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(directory.path() + "/file") << "not of trireme";
  std::ofstream(path) << deck::completed(
      "run: {directory: " + directory.path() +
      "/file/run, steps: many}\n"
      "data: {train: {text: [missing.txt]}, tokenizer: none.json}\n"
      "record: {metrics_file: " +
      directory.path() + "/file}\n");
  try {
    check_command({path, {"checkpoint.keep=-1"}}, {.ranks = 1});
    FAIL() << "nothing was missed";
  } catch (const UserError& error) {
    std::vector<std::string> keys;
    for (const Diagnostic& one : error.findings()) keys.push_back(one.subject);
    EXPECT_THAT(keys,
                testing::ElementsAre("run.directory", "run.steps", "data.train.text",
                                     "data.tokenizer", "record.metrics_file", "checkpoint.keep"))
        << error.what();
  }
}

TEST(CheckCommand, CountsTheCheckpointsThatAreKept) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed("model: {layers: 1, heads: 1, channels: 8, context: 4}\n");
  const auto kept = [&](const std::string& keep, const std::string& milestones) {
    const std::string text =
        check_command({path,
                       {"run.steps=1001", "checkpoint.every_steps=10", "checkpoint.keep=" + keep,
                        "checkpoint.keep_every=" + milestones}},
                      {.ranks = 1});
    const auto at = text.find("space: ");
    double one = 0, all = 0;
    char unit = 0, units = 0;
    EXPECT_EQ(std::sscanf(text.c_str() + at, "space: %lf %ciB per checkpoint, %lf %ciB", &one,
                          &unit, &all, &units),
              4)
        << text;
    if (units != unit)
      all *= 1024;
    return std::lround(all / one);
  };
  EXPECT_EQ(kept("3", "0"), 4) << "the fourth is being written";
  EXPECT_EQ(kept("3", "250"), 8);
  EXPECT_EQ(kept("0", "0"), 101) << "all are kept";
  EXPECT_EQ(kept("500", "0"), 101) << "there are no more";
  EXPECT_EQ(kept("9223372036854775807", "0"), 101);
}

TEST(CheckCommand, EndsWithWhatItCannotKnow) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed("model: {layers: 1, heads: 1, channels: 8, context: 4}\n");
  const std::string text = check_command({path, {"run.walltime=60"}}, {.ranks = 2});
  EXPECT_THAT(text, HasSubstr("memory: in fp32 a rank needs "));
  EXPECT_THAT(text, HasSubstr("time:  the run stops after 1 min 00 s (run.walltime)\n"));
  EXPECT_THAT(text, HasSubstr("space: "));
  const auto last = text.rfind('\n', text.size() - 2) + 1;
  EXPECT_TRUE(text.substr(last).starts_with("not checked: ")) << text;
}

TEST(CheckCommand, ExplainsWhyThereAreNoCopiesInMemory) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed("checkpoint: {memory_every_steps: 5}\n");
  const auto said = [&](const std::string& on_lost_rank, int ranks) {
    const std::string text =
        check_command({path, {"parallel.on_lost_rank=" + on_lost_rank}}, {.ranks = ranks});
    const std::string begin = "note: checkpoint.memory_every_steps has no effect: ";
    const auto at = text.find(begin);
    return at == std::string::npos
               ? ""
               : text.substr(at + begin.size(), text.find('\n', at) - at - begin.size());
  };
  EXPECT_EQ(said("stop", 2), "parallel.on_lost_rank is stop: set it to shrink");
  EXPECT_EQ(said("shrink", 1), "the run has 1 rank");
  EXPECT_EQ(said("shrink", 2), comm::why_losses_end_all_ranks());
}

TEST(CheckCommand, ComparesTheMemoryWithTheHost) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed(
      "model: {layers: 1000, heads: 64, channels: 16384, context: 1024}\n");
  // In a control group with a limit it is an error (tests/integration/limits_test.py).
  std::string text;
  try {
    text = check_command({path, {"run.precision=fp32"}}, {.ranks = 2});
  } catch (const UserError& error) {
    text = error.what();
  }
  EXPECT_THAT(text,
              testing::AllOf(HasSubstr("on this host 2 ranks need "), HasSubstr(" each), but "),
                             HasSubstr("recompute: block a rank still needs ")));
}

TEST(CheckCommand, NamesWhatBytesForRecomputingComeTo) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed(
      "model: {layers: 4, heads: 2, channels: 16, context: 8, recompute: {memory: 1 GiB}}\n");
  const auto text = [&](const std::vector<std::string>& overrides) {
    return check_command({path, overrides}, {.ranks = 2});
  };
  EXPECT_THAT(text({}), testing::ContainsRegex("\nrecompute in fp32: none: .* of 1 GiB\n"
                                               "recompute in bf16: none: .* of 1 GiB\n"));
  EXPECT_THAT(text({"model.recompute=[block, block, none, none]"}),
              testing::Not(HasSubstr("recompute in")));
  try {
    text({"model.recompute.memory=64 KiB"});
    FAIL() << "it took too few bytes";
  } catch (const UserError& error) {
    ASSERT_EQ(error.findings().size(), 2U) << "one for each precision";
    EXPECT_THAT(error.what(), HasSubstr("65536 is too little: in fp32 a rank needs at least "));
    EXPECT_THAT(error.what(), HasSubstr("), with block"));
  }
}

TEST(CheckCommand, NamesThePartsOfAModel) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed("model: {preset: nanochat-d12}\n");
  const auto text = [&](const std::vector<std::string>& overrides) {
    return check_command({path, overrides}, {.ranks = 1});
  };
  EXPECT_THAT(text({}),
              HasSubstr("rms_norm without gain and of the embedding, squared_relu with 3072 "
                        "channels, rotary positions, 6 key and value heads of 128 "
                        "channels, qk_norm without_gain\n"));
  EXPECT_THAT(text({"model.preset=qwen3-0.6b"}),
              HasSubstr("rms_norm, swiglu with 3072 channels, rotary positions, 8 key and value "
                        "heads of 128 channels, qk_norm with_gain\n"));
  EXPECT_THAT(text({"model.preset=gpt2-124m"}), testing::Not(HasSubstr("qk_norm")));
}

TEST(CheckCommand, NamesWhatTrainsSlowlyOnAGpu) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed("model: {preset: gpt2-124m}\n");
  const auto text = [&](const std::vector<std::string>& overrides) {
    return check_command({path, overrides}, {.ranks = 1});
  };
  EXPECT_THAT(text({}), testing::Not(HasSubstr("note:")));
  EXPECT_THAT(text({"model.dropout=0.1"}), testing::Not(HasSubstr("note:")));
  // 768 channels of 4 heads: 192 each.
  EXPECT_THAT(
      text({"model.heads=4"}),
      HasSubstr("note: a GPU trains attention with heads of 192 channels (tensor cores take "
                "multiples of 8 up to 128) in bf16 without tensor cores"));
  EXPECT_THAT(text({"model.heads=4", "run.precision=fp32"}), testing::Not(HasSubstr("note:")));
  EXPECT_THAT(text({"model.heads=4", "run.device=cpu"}), testing::Not(HasSubstr("note:")));
}

TEST(CheckCommand, NamesWhatIsNotAsTheFamilyHasIt) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path() + "/a.yaml";
  std::ofstream(path) << deck::completed("model: {preset: nanochat-d12}\n");
  const auto text = [&](const std::vector<std::string>& overrides) {
    return check_command({path, overrides}, {.ranks = 1});
  };
  EXPECT_THAT(text({}), testing::Not(HasSubstr("different from")));
  EXPECT_THAT(text({"model.layers=2", "model.context=64"}),
              testing::Not(HasSubstr("different from")))
      << "sizes are said in the line before";
  EXPECT_THAT(text({"model.attention_window=8", "model.window_pattern=SSSL"}),
              HasSubstr("different from nanochat-d12: attention_window 8, window_pattern "
                        "SSSLSSSLSSSL\n"));
  EXPECT_THAT(text({"model.logit_softcap=0"}), HasSubstr("from nanochat-d12: logit_softcap 0\n"));
  EXPECT_THAT(text({"model.family=gpt2", "model.logit_softcap=30", "model.bias=false"}),
              HasSubstr("different from gpt2: bias false, logit_softcap 30\n"));
}

}  // namespace
}  // namespace trireme::cli
