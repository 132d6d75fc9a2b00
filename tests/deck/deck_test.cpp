// SPDX-License-Identifier: Apache-2.0
#include "deck/deck.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deck/bad_deck.hpp"
#include "deck/value.hpp"
#include "deck/values.hpp"
#include "support/open_file_limit.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::deck {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* good = R"(# a comment
run:
  name: "a run: with # signs"
  directory: runs/a
  steps: 100
  walltime: 1:30:05
model: {layers: 2, heads: 2, channels: 16, context: 8}
data:
  train:
    text:
      - /usr/include/c++
      - "*.txt"
  cache: auto
batch: {sequences: 12, micro_sequences: 3}
optimizer:
  learning_rate: 1e-3
  schedule: {kind: wsd, warmup_steps: 10}
parallel:
evaluate: {every_steps: 10}
)";

Deck parsed(const std::vector<std::string>& overrides = {}) {
  return parse(good, "deck.yaml", overrides, Circumstances{.ranks = 2, .cuda = false});
}

std::string message_of(const std::string& path) {
  try {
    read_deck_file(path);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Deck, ReadsEveryKindOfValue) {
  const JobConfig config = parsed().config;
  EXPECT_EQ(config.run.name, "a run: with # signs");
  EXPECT_EQ(config.run.steps, 100);
  EXPECT_EQ(config.run.walltime.value_or({}).seconds, 5405);
  EXPECT_FALSE(config.run.threads.given());
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_THAT(config.data.train.text, ElementsAre("/usr/include/c++", "*.txt"));
  EXPECT_FALSE(config.data.cache.given());
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(config.optimizer.schedule.kind, trireme::optim::Schedule::wsd);
  EXPECT_EQ(config.optimizer.beta2, 0.95) << "the default";
}

class References : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("SLURM_JOB_ID", "77", 1);
    ::setenv("SLURM_ARRAY_JOB_ID", "70", 1);
    ::setenv("SLURM_ARRAY_TASK_ID", "3", 1);
    ::setenv("TRIREME_TEST_PLACE", "with # signs: {and} \"quotes\"", 1);
  }
  void TearDown() override {
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "TRIREME_TEST_PLACE"})
      ::unsetenv(name);
  }
  static std::string findings(const std::vector<std::string>& overrides) {
    try {
      parsed(overrides);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(References, AreReplacedInOverrides) {
  const auto name = [](const std::string& text) {
    return parsed({"run.name=" + text}).config.run.name;
  };
  EXPECT_EQ(name("{job}-{array}"), "70-3");
  EXPECT_EQ(name("'a{array}'"), "a3");
  EXPECT_EQ(name("${TRIREME_TEST_PLACE}"), "with # signs: {and} \"quotes\"");
  EXPECT_EQ(parsed({"run.seed={array}"}).config.run.seed, 3);
  EXPECT_EQ(parsed({"run.seed=${SLURM_ARRAY_TASK_ID}"}).config.run.seed, 3);
  EXPECT_EQ(parsed({"optimizer.learning_rate={array}e-4"}).config.optimizer.learning_rate, 3e-4);
  EXPECT_THAT(parsed({"data.train.text=[{array}.txt, b{job}]"}).config.data.train.text,
              ElementsAre("3.txt", "b70"));
}

TEST_F(References, StandForThemselvesWhenDoubled) {
  for (const std::string text :
       {"${X}", "{job}", "{array} {x} ${X} $${X} {{job}}", "$X", "{x}", "${1}", "{ job }"}) {
    const std::string word = yaml_text(text);
    EXPECT_EQ(parsed({"run.name=" + word}).config.run.name, text) << word;
  }
  EXPECT_EQ(parsed({"run.name='$${HOME} {{array}}'"}).config.run.name, "${HOME} {array}");
}

TEST_F(References, AreReplacedInDecks) {
  const std::string deck = std::string(good) + "sample: {prompt: a {job} b} # ${NOT_SET}\n";
  const Deck read = parse(deck, "deck.yaml", {"data.tokenizer=bytes"});
  EXPECT_EQ(read.config.sample.prompt, "a 70 b");
}

TEST_F(References, WithoutAValueAreFindingsAtTheirPlaces) {
  ::setenv("TRIREME_TEST_PLACE", "", 1);
  EXPECT_EQ(findings({"run.steps=70", "run.seed=${NOT_SET_1}", "run.name=a${TRIREME_TEST_PLACE}"}),
            "command line:2:10: error: run.seed: the environment variable of ${NOT_SET_1} is not "
            "set or empty. Set and export it. For the text itself, write $${NOT_SET_1}. (in "
            "'run.seed=${NOT_SET_1}')\n"
            "command line:3:10: error: run.name: the environment variable of "
            "${TRIREME_TEST_PLACE} is not set or empty. Set and export it. For the text itself, "
            "write $${TRIREME_TEST_PLACE}. (in 'run.name=a${TRIREME_TEST_PLACE}')");
  ::unsetenv("SLURM_ARRAY_JOB_ID");
  ::unsetenv("SLURM_ARRAY_TASK_ID");
  EXPECT_EQ(parsed({"run.name={job}"}).config.run.name, "77");
  EXPECT_THAT(findings({"run.name={array}"}), HasSubstr("run.name: {array} is unknown, because"));
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_THAT(findings({"run.name={job}"}), HasSubstr("run.name: {job} is unknown, because"));
  EXPECT_THAT(findings({"run.{job}=3"}), HasSubstr("'run.{job}=3' is not an override"));
}

TEST_F(References, OfOtherEnvironmentsAreTakenFromTheCaller) {
  const Circumstances rank{.ranks = 2, .references = {{{"{array}", "9"}}}};
  EXPECT_EQ(parse(good, "deck.yaml", {"run.seed={array}"}, rank).config.run.seed, 9);
}

TEST(Deck, TakesAnyWordAsText) {
  for (const char* word : {"010", "true", "1e3", "a-b", "'quoted'", "\"with \\\" inside\""}) {
    const Deck deck = parsed({std::string("run.name=") + word});
    EXPECT_FALSE(deck.config.run.name.empty()) << word;
  }
  EXPECT_EQ(parsed({"run.name=010"}).config.run.name, "010");
  EXPECT_EQ(parsed({"run.name='null'"}).config.run.name, "null");
}

TEST(Deck, DistinguishesAKeywordFromTheSameTextInQuotes) {
  EXPECT_FALSE(parsed({"data.cache=auto"}).config.data.cache.given());
  EXPECT_EQ(parsed({"data.cache='auto'"}).config.data.cache.value, "auto");
  EXPECT_EQ(parsed({"run.threads=3"}).config.run.threads.value, 3);
}

TEST(Deck, ReadsDurations) {
  const auto seconds = [](const std::string& text) {
    return parsed({"run.walltime=" + text}).config.run.walltime.value_or({-1}).seconds;
  };
  EXPECT_EQ(seconds("0:00:01"), 1);
  EXPECT_EQ(seconds("100:00:00"), 360000);
  EXPECT_EQ(seconds("90"), 90);
  EXPECT_EQ(seconds("0.5"), 0.5);
  EXPECT_EQ(seconds("none"), -1);
}

TEST(Deck, ReadsWindowsLinesAndAByteOrderMark) {
  std::string bytes = good;
  for (std::size_t at = 0; (at = bytes.find('\n', at)) != std::string::npos; at += 2)
    bytes.insert(at, "\r");
  const auto values = [](const std::string& text) {
    return values_of(parse(text, "deck.yaml", {}).config);
  };
  EXPECT_EQ(values(bytes), values(good));
  EXPECT_EQ(values(std::string("\xef\xbb\xbf") + good), values(good));
  EXPECT_EQ(values(std::string("%YAML 1.2\n---\n") + good + "...\n"), values(good));
}

TEST(Deck, RefusesZeroBytes) {
  EXPECT_THAT(findings_of(std::string("run: {}\0", 8), {}, 1),
              ElementsAre("deck.yaml: error: this is not a text file: it contains zero bytes"));
}

TEST(Deck, RemembersWhereKeysWereGiven) {
  const Deck deck = parsed({"optimizer.schedule.kind=linear"});
  EXPECT_EQ(deck.places.of("run.steps").line, 5);
  EXPECT_EQ(deck.places.of("run.steps").column, 10);
  EXPECT_EQ(deck.places.of("optimizer.schedule.kind").file, command_line);
  EXPECT_EQ(deck.places.of("optimizer.schedule.kind").column, 25);
  EXPECT_FALSE(deck.places.given("run.seed"));
  EXPECT_EQ(deck.places.of("run.seed").line, 2) << "the section's";
  EXPECT_EQ(deck.places.of("memory.pool").line, 0) << "the whole file";
}

TEST(Override, ReplacesAddsAndMerges) {
  const JobConfig config =
      parsed({"run.steps=7", "data.train.text=[/a, \"/b c\"]", "memory.pool=false",
              "optimizer.schedule={final_fraction: 0.5, warmup_steps: 1}", "parallel.padding=none"})
          .config;
  EXPECT_EQ(config.run.steps, 7);
  EXPECT_THAT(config.data.train.text, ElementsAre("/a", "/b c"));
  EXPECT_FALSE(config.memory.pool);
  EXPECT_EQ(config.optimizer.schedule.kind, trireme::optim::Schedule::wsd) << "of the deck";
  EXPECT_EQ(config.optimizer.schedule.warmup_steps, 1);
  EXPECT_EQ(config.optimizer.schedule.final_fraction, 0.5);
  EXPECT_EQ(config.parallel.padding, trireme::layout::Padding::none);
}

TEST(Override, MayHoldEqualsSignsAndBlanks) {
  EXPECT_EQ(parsed({"sample.prompt=int a = 3;"}).config.sample.prompt, "int a = 3;");
  EXPECT_EQ(parsed({"sample.prompt=  x  "}).config.sample.prompt, "x");
  EXPECT_EQ(parsed({"sample.prompt='#include <a>'"}).config.sample.prompt, "#include <a>");
  EXPECT_EQ(parsed({"sample.prompt="
                    "\"a\\nb\""})
                .config.sample.prompt,
            "a\nb");
}

TEST(Override, OfSeveralLinesIsRefusedUnderItsOwnNumber) {
  EXPECT_THAT(
      findings_of(good, {"run.seed=1", "run.name={a\n: b"}, 2),
      ElementsAre("command line:2:1: error: run.name: an override must not contain a line break. "
                  "Write a value of several lines in the deck. (in 'run.name={a?: b')"));
}

TEST(Override, CompletesADeckThatLacksIt) {
  EXPECT_THAT(findings_of("run: {directory: r}\nmodel: {preset: gpt2-124m}\n",
                          {"run.steps=3", "batch={sequences: 4, micro_sequences: 2}",
                           "data.train.synthetic=10000"},
                          2),
              testing::IsEmpty());
}

TEST(Override, GivesWayToNoneOfTheDecksWhenItIsWrong) {
  // The wrong override is the only finding: the deck's own value is not used instead.
  EXPECT_THAT(findings_of(good, {"run.steps=x"}, 2),
              ElementsAre("command line:1:11: error: run.steps: 'x' is not a whole number (in "
                          "'run.steps=x')"));
}

TEST(Check, KnowsABuildWithCuda) {
  const std::vector<std::string> cuda = {"run.device=cuda"};
  EXPECT_NO_THROW(parse(good, "deck.yaml", cuda, Circumstances{.ranks = 2, .cuda = true}));
  EXPECT_THROW(parse(good, "deck.yaml", cuda, Circumstances{.ranks = 2, .cuda = false}), UserError);
  EXPECT_NO_THROW(parse(good, "deck.yaml", cuda)) << "without circumstances nothing is checked";
}

TEST(Check, FillsTheVocabularyFromPresetOrTokenizer) {
  EXPECT_EQ(parsed().shape().vocabulary, 256);
  EXPECT_EQ(parsed({"model.vocabulary=300"}).shape().vocabulary, 300);
  EXPECT_EQ(parsed({"model.preset=gpt2-124m"}).shape().vocabulary, 50304);
}

/// The nearest values that the message suggests work, and no nearer value does.
TEST(Check, NamesBatchesThatWork) {
  const auto findings = [](std::int64_t sequences, std::int64_t micro, int ranks) {
    return findings_of(good,
                       {"batch.sequences=" + std::to_string(sequences),
                        "batch.micro_sequences=" + std::to_string(micro), "batch.equal_ranks=true"},
                       ranks);
  };
  int refused = 0;
  for (int ranks = 1; ranks <= 7; ++ranks)
    for (std::int64_t micro = 1; micro <= 5; ++micro)
      for (std::int64_t sequences = ranks; sequences <= 60; ++sequences) {
        const std::int64_t unit = micro * ranks;
        const std::vector<std::string> found = findings(sequences, micro, ranks);
        if (sequences % unit == 0) {
          EXPECT_THAT(found, testing::IsEmpty());
          continue;
        }
        ++refused;
        ASSERT_EQ(found.size(), 2U);
        const std::string above = std::to_string(sequences / unit * unit + unit);
        EXPECT_THAT(found[0], HasSubstr(". Use "));
        EXPECT_THAT(found[0], HasSubstr(" " + above));
        const std::string key = "or micro_sequences: ";
        const std::size_t named = found[1].find(key);
        ASSERT_EQ(named == std::string::npos, sequences % ranks != 0) << found[1];
        if (named != std::string::npos) {
          const std::int64_t other = std::stoll(found[1].substr(named + key.size()));
          EXPECT_LE(other, micro);
          EXPECT_THAT(findings(sequences, other, ranks), testing::IsEmpty());
        }
      }
  EXPECT_GT(refused, 500);
}

class DeckFile : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return directory_ + "/" + name; }

  const test::ScratchDirectory scratch_;
  const std::string directory_ = scratch_.path();
};

TEST_F(DeckFile, ComesByteForByte) {
  std::ofstream(path("a.yaml")) << good;
  EXPECT_EQ(read_deck_file(path("a.yaml")), good);
  EXPECT_EQ(message_of(path("a.yaml")), "");
}

TEST_F(DeckFile, ThatTheMachineCannotOpenIsNoMistakeOfTheUsers) {
  std::ofstream(path("a.yaml")) << good;
  const test::NoFurtherFile limit;
  EXPECT_THROW(read_deck_file(path("a.yaml")), StorageError);
}

TEST_F(DeckFile, IsMissedOrRefusedWithItsName) {
  EXPECT_EQ(message_of(path("no.yaml")),
            path("no.yaml") + ": error: cannot read the deck: No such file or directory");
  EXPECT_EQ(message_of(directory_),
            directory_ + ": error: this is a directory. Give a deck, which is a YAML file.");
  std::ofstream(path("big.yaml")) << std::string((1U << 20U) + 1, '#');
  EXPECT_EQ(
      message_of(path("big.yaml")),
      path("big.yaml") + ": error: the file is longer than 1 MiB; a deck is a short YAML file");
  EXPECT_THAT(message_of(path("a.yaml/b.yaml")), HasSubstr("cannot read the deck"));
}

/// Any bytes give either a deck or a UserError with positions in the text.
TEST(DeckFuzz, BrokenTextIsTheUsersMistakeAndNothingElse) {
  std::mt19937 random(1);  // NOLINT: the same decks every time
  const std::string alphabet = " \t\n:-#[]{},&*!|>'\"%@`~?.0123abtrue<=\\\xff\x01";
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = random() % bytes.size();
      const char letter = alphabet[random() % alphabet.size()];
      if (random() % 3 == 0)
        bytes.erase(at, 1 + random() % 20);
      else if (random() % 2 == 0)
        bytes.insert(at, 1 + random() % 3, letter);
      else
        bytes[at] = letter;
    }
    try {
      parse(bytes, "deck.yaml", {"run.seed=3"}, Circumstances{.ranks = 2, .cuda = false});
    } catch (const UserError& error) {
      ++refused;
      ASSERT_FALSE(error.findings().empty());
      for (const Diagnostic& finding : error.findings()) {
        ASSERT_GE(finding.place.line, 0) << bytes;
        ASSERT_LE(finding.place.line, 100) << bytes;
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 3000);
}

TEST(DeckFuzz, DeepNestingIsRefusedWithoutAStackOverflow) {
  EXPECT_FALSE(findings_of("run: " + std::string(100000, '['), {}, 1).empty());
  EXPECT_FALSE(findings_of("run: " + std::string(100000, '{'), {}, 1).empty());
}

}  // namespace
}  // namespace trireme::deck
