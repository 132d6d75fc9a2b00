// SPDX-License-Identifier: Apache-2.0
#include "train/resume.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "base/error.hpp"

#include "comm/control/world.hpp"

#include "session/small_job.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* seen = "00000000000000aa";

/// A deck, and a checkpoint of a run with another deck.
class Resume : public testing::Test {
 protected:
  /// The rules and values of five keys; the checkpoint has the same ones.
  Resume() {
    now_ = {{"run.steps", "20"},
            {"run.seed", "1337"},
            {"data.train.text", "[a]"},
            {"batch.sequences", "12"},
            {"optimizer.learning_rate", "6e-4"}};
    before_.directory = "run/checkpoints/step-00000010";
    before_.facts.step = 10;
    before_.facts.deck = now_;
    before_.facts.more = {{data_hash_fact, seen}, {run_id_fact, "0123456789abcdef"}};
  }
  [[nodiscard]] session::Job job() const {
    session::Job job = job_;
    job.deck = now_;
    job.rules = {Change::free, Change::never, Change::asked, Change::asked, Change::free};
    return job;
  }
  void set(const char* key, const char* value) {
    for (auto& [known, text] : now_)
      if (known == key)
        text = value;
  }
  [[nodiscard]] std::string refusal(const char* data_hash = seen) const {
    try {
      expect_allowed(before_, job(), data_hash);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  session::Job job_ = session::small_job();
  record::NameValues now_;
  Resumed before_;
};

TEST_F(Resume, ReportsNothingWhereNothingChanged) {
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(change_table(before_, job(), seen), IsEmpty());
}

TEST_F(Resume, FreeKeysChangeAndAreShown) {
  set("optimizer.learning_rate", "3e-4");
  set("run.steps", "40");
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(change_table(before_, job(), seen),
              ElementsAre("changed since step 10:", "  run.steps                  20 -> 40",
                          "  optimizer.learning_rate  6e-4 -> 3e-4"));
}

TEST_F(Resume, WhatMakesItAnotherExperimentNeedsAllowChanges) {
  set("batch.sequences", "24");
  EXPECT_EQ(
      refusal(),
      "error: batch.sequences: 24 here, but run/checkpoints/step-00000010 was written with 12; "
      "change it back, or allow it with run.allow_changes=[batch.sequences]");
  job_.run.allow_changes = {"batch.sequences"};
  EXPECT_EQ(refusal(), "");
  job_.run.allow_changes = {"batch"};
  EXPECT_EQ(refusal(), "");
  job_.run.allow_changes = {"batc", "batch.micro_sequences"};
  EXPECT_NE(refusal(), "");
}

TEST_F(Resume, SomeKeysNeverChangeAndAllRefusalsComeAtOnce) {
  set("run.seed", "1");
  set("batch.sequences", "24");
  job_.run.allow_changes = {"run"};
  const std::string text = refusal();
  EXPECT_THAT(text,
              HasSubstr("run.seed: 1 here, but run/checkpoints/step-00000010 was written with "
                        "1337, and a run cannot change it"));
  EXPECT_THAT(text, HasSubstr("batch.sequences"));
}

TEST_F(Resume, DataAreJudgedByTheirHash) {
  EXPECT_THAT(refusal("00000000000000bb"),
              HasSubstr("data: these are not the tokens that run/checkpoints/step-00000010 was "
                        "trained on: the files were changed"));
  set("data.train.text", "[elsewhere/a]");
  EXPECT_EQ(refusal(), "") << "the same text under another name";
  EXPECT_THAT(refusal("00000000000000bb"), HasSubstr("data.train.text: [elsewhere/a] here"));
  job_.run.allow_changes = {"data"};
  EXPECT_EQ(refusal("00000000000000bb"), "");
}

TEST_F(Resume, LongValuesShowWhereTheyDiffer) {
  const std::string same(60, 'a');
  for (auto* deck : {&now_, &before_.facts.deck})
    for (auto& [key, text] : *deck)
      if (key == "optimizer.learning_rate")
        text = same + (deck == &now_ ? "now" : "then") + same;
  EXPECT_THAT(change_table(before_, job(), seen),
              ElementsAre("changed since step 10:",
                          "  optimizer.learning_rate  ...aaaaaaaathen" + std::string(30, 'a') +
                              "... -> ...aaaaaaaanow" + std::string(31, 'a') + "..."));
}

TEST_F(Resume, OtherTokensUnderTheSameNamesAreShown) {
  EXPECT_THAT(change_table(before_, job(), "00000000000000bb"),
              ElementsAre("changed since step 10:",
                          "  data (hash of its tokens)  00000000000000aa -> 00000000000000bb"));
}

TEST_F(Resume, ATokenizerIsNotLost) {
  before_.facts.more.emplace_back(tokenizer_fact, "00000000000000cc");
  EXPECT_THAT(refusal(), HasSubstr("written with a tokenizer of hash 00000000000000cc"));
}

TEST_F(Resume, SamplesBeforeTheCheckpointStayWhatTheyWere) {
  before_.facts.next_sample = 25;
  before_.facts.deck.emplace_back("data.skip", "[\"5\", 20-30]");
  now_.emplace_back("data.skip", "");
  for (const char* same : {"[\"5\", 20-30]", "[20-24, \"5\"]", "[\"5\", 20-40, \"50\"]"}) {
    set("data.skip", same);
    EXPECT_EQ(refusal(), "");
  }
  for (const char* other : {"[]", "[\"5\"]", "[\"5\", 20-23]", "[5-6, 20-30]", "[20-30]"}) {
    set("data.skip", other);
    EXPECT_THAT(refusal(), HasSubstr("[\"5\", 20-30] among the 25 samples before "
                                     "run/checkpoints/step-00000010. Skip only later samples"));
  }
  job_.run.allow_changes = {"data"};
  EXPECT_NE(refusal(), "") << "this is never allowed";
}

TEST_F(Resume, WhatAnImportedModelDoesNotStateIsNotCompared) {
  before_.facts.step = 0;
  before_.facts.deck.clear();
  before_.facts.more.clear();
  before_.facts.seed = 1337;
  set("batch.sequences", "24");
  EXPECT_EQ(refusal("00000000000000bb"), "");
  EXPECT_THAT(change_table(before_, job(), seen), IsEmpty());
  EXPECT_EQ(rate_jump(before_, job()), "");
  before_.facts.seed = 5;
  EXPECT_THAT(refusal(), testing::StartsWith("error: run.seed: 1337 here, but run/checkpoints/"));
}

TEST_F(Resume, ARateThatJumpsWithTheLengthOfTheRunIsReported) {
  job_.optimizer.schedule.kind = optim::Schedule::cosine;
  job_.optimizer.schedule.warmup_steps = 2;
  before_.facts.step = 20;  // a finished run that continues
  job_.run.steps = 40;
  set("run.steps", "40");
  EXPECT_THAT(
      rate_jump(before_, job()),
      testing::AllOf(HasSubstr("the learning rate jumps from 6e-05 at step 20 to 0.000"),
                     HasSubstr("optimizer.schedule.steps=20 keeps the one that the run had")));
  job_.optimizer.schedule.steps.value = 20;
  EXPECT_EQ(job().schedule_steps(), 20);
  EXPECT_EQ(rate_jump(before_, job()), "");
  job_.optimizer.schedule.steps.value.reset();
  job_.optimizer.schedule.kind = optim::Schedule::constant;
  EXPECT_EQ(rate_jump(before_, job()), "");
  job_.optimizer.learning_rate *= 10;  // which the table of changes reports
  EXPECT_EQ(rate_jump(before_, job()), "");
}

TEST_F(Resume, ACheckpointOfAnotherRunIsRefused) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  record::RunDirectory directory(scratch / "run", *world);
  EXPECT_EQ(directory.stored_id(), "");
  EXPECT_EQ(choose_run_id(directory, before_), "0123456789abcdef") << "adopted";
  const std::string fresh = choose_run_id(directory, std::nullopt);
  EXPECT_EQ(fresh.size(), 16U);
  EXPECT_NE(fresh, choose_run_id(directory, std::nullopt));

  directory.set_id("fedcba9876543210");
  EXPECT_EQ(directory.stored_id(), "fedcba9876543210");
  EXPECT_EQ(test::bytes_of(scratch / "run/run.id"),
            "fedcba9876543210\n" + std::filesystem::canonical(scratch / "run").string() + "\n");
  const auto refused = [&] {
    try {
      choose_run_id(directory, before_);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(), HasSubstr("this is a checkpoint of run 0123456789abcdef"));
  before_.facts.more.clear();
  EXPECT_EQ(choose_run_id(directory, before_), "fedcba9876543210");
  test::write_bytes(scratch / "run/run.id", "nonsense");
  EXPECT_THAT(refused(), HasSubstr("run.id: error: the file does not contain the name of a run"));
}

}  // namespace
}  // namespace trireme::train
