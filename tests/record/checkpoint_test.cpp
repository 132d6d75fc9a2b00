// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/manifest.hpp"
#include "record/checkpoint_cases.hpp"

#include "support/checkpoint_reader.hpp"
#include "support/child_process.hpp"
#include "support/scratch_directory.hpp"
#include "support/sequential_ranks.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void save_on(int ranks, const std::string& directory, std::int64_t step, Retention retention = 0) {
  test::SequentialRanks(ranks).run(
      [&](comm::World& world) { save_small(directory, step, world, retention); });
}

std::string refusal_of(const std::string& directory, int ranks = 2) {
  try {
    test::SequentialRanks(ranks).run([&](comm::World& world) { load_small(directory, world); });
  } catch (const UserError& error) {
    EXPECT_EQ(error.findings().size(), 1U);
    return error.what();
  }
  return "accepted";
}

std::vector<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.insert(entry.path().filename().string());
  return {names.begin(), names.end()};
}

void flip_bit(const std::string& path, std::size_t position) {
  std::string bytes = test::bytes_of(path);
  ASSERT_LT(position, bytes.size());
  bytes[position] = static_cast<char>(bytes[position] ^ 1);
  test::write_bytes(path, bytes);
}

class Reshard : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Reshard, GivesBackEveryElementAndFact) {
  const auto [writers, readers] = GetParam();
  const test::ScratchDirectory scratch;
  save_on(writers, scratch.path(), 500);
  const std::string directory = scratch / "checkpoints/step-00000500";
  for (const std::int64_t bucket : {1, 600, 1'000'000})
    for (const auto padding : {layout::Padding::aligned, layout::Padding::none})
      test::SequentialRanks(readers).run([&](comm::World& world) {
        const CheckpointFacts facts = load_small(directory, world, bucket, padding);
        EXPECT_EQ(facts.step, 500);
        EXPECT_EQ(facts.next_sample, 4000U);
        EXPECT_EQ(facts.seed, 1337U);
        EXPECT_EQ(facts.model, facts_of(500).model);
        EXPECT_EQ(facts.more, facts_of(500).more);
      });
}

INSTANTIATE_TEST_SUITE_P(,
                         Reshard,
                         testing::Values(std::pair(1, 1),
                                         std::pair(1, 3),
                                         std::pair(2, 4),
                                         std::pair(3, 2),
                                         std::pair(4, 3),
                                         std::pair(4, 1),
                                         std::pair(7, 5)),
                         [](const auto& one) {
                           return std::to_string(one.param.first) + "to" +
                                  std::to_string(one.param.second);
                         });

TEST(Checkpoint, HasContentHashesThatDoNotDependOnTheRankCount) {
  const test::ScratchDirectory one, four;
  save_on(1, one.path(), 7);
  save_on(4, four.path(), 7);
  const CheckpointReader a(one / "checkpoints/step-00000007");
  const CheckpointReader b(four / "checkpoints/step-00000007");
  EXPECT_EQ(a.ranks(), 1);
  EXPECT_EQ(b.ranks(), 4);
  EXPECT_EQ(a.states(), states);
  std::set<std::uint64_t> seen;
  for (const std::string& state : states)
    for (const std::string& parameter : a.parameters()) {
      EXPECT_EQ(a.content_hash(state, parameter), b.content_hash(state, parameter));
      seen.insert(a.content_hash(state, parameter));
    }
  EXPECT_EQ(seen.size(), states.size() * small_model().size());
}

/// Loads on this number of ranks and layout what another one wrote, and saves it again. `whole`:
/// every rank holds everything, as without sharding, and writes the part that it owns.
void pass_on(const std::string& directory,
             std::int64_t step,
             int ranks,
             std::int64_t bucket_elements,
             layout::Padding padding,
             bool whole) {
  const layout::Plan plan = plan_for(ranks, bucket_elements, padding);
  const std::string from = directory + "/checkpoints/" + checkpoint_name(step);
  test::SequentialRanks(ranks).run([&](comm::World& world) {
    Owned owned(plan, world.rank());
    if (!whole) {
      load_checkpoint(from, plan, facts_of(0).model, owned.wanted(), world);
    } else {
      std::vector<std::vector<float>> values;
      std::vector<MutableSlab> wanted;
      for (const std::string& state : states)
        for (std::size_t p = 0; p < plan.parameters().size(); ++p) {
          const auto parameter = static_cast<ParameterIndex>(p);
          const std::int64_t elements = plan.parameter(parameter).elements();
          values.emplace_back(static_cast<std::size_t>(elements));
          wanted.push_back({state, parameter, 0, view_of(values.back().data(), elements)});
        }
      load_checkpoint(from, plan, facts_of(0).model, wanted, world);
      owned.each([&](std::size_t s, const layout::Piece& piece, float* data) {
        const float* all = values[s * plan.parameters().size() + at(piece.parameter)].data();
        std::copy_n(all + piece.parameter_begin, piece.elements, data);
      });
    }
    save_checkpoint(directory, plan, facts_of(step + 1), owned.slabs(), 0, world);
  });
}

TEST(Checkpoint, KeepsItsContentHashesFromHandToHand) {
  const test::ScratchDirectory scratch;
  save_on(3, scratch.path(), 1);
  using layout::Padding;
  pass_on(scratch.path(), 1, 2, 1, Padding::none, false);
  pass_on(scratch.path(), 2, 1, 1'000'000, Padding::megatron, false);
  pass_on(scratch.path(), 3, 4, 300, Padding::aligned, true);
  pass_on(scratch.path(), 4, 3, 1, Padding::megatron_high_bandwidth, false);
  pass_on(scratch.path(), 5, 2, 600, Padding::none, true);
  const CheckpointReader first(scratch / "checkpoints/step-00000001");
  for (std::int64_t step = 2; step <= 6; ++step) {
    const CheckpointReader other(scratch / ("checkpoints/" + checkpoint_name(step)));
    for (const std::string& state : states)
      for (const std::string& parameter : first.parameters())
        EXPECT_EQ(other.content_hash(state, parameter), first.content_hash(state, parameter))
            << "step " << step << " " << state << " " << parameter;
  }
}

TEST(Checkpoint, IsReadWholeByOneProcessInEitherPrecision) {
  const test::ScratchDirectory scratch;
  save_on(3, scratch.path(), 7);
  const CheckpointReader reader(scratch / "checkpoints/step-00000007");
  EXPECT_EQ(reader.facts().step, 7);
  std::vector<float> values(48 * 16);
  std::vector<Bf16> rounded(48 * 16);
  reader.read("moment1", "h.0.fc.weight", view_of(values.data(), 48 * 16));
  reader.read("moment1", "h.0.fc.weight", view_of(rounded.data(), 48 * 16));
  for (std::int64_t i = 0; i < 48 * 16; ++i) {
    const auto n = static_cast<std::size_t>(i);
    ASSERT_EQ(values[n], value_of(1, ParameterIndex(2), i));
    ASSERT_EQ(rounded[n].bits, Bf16(values[n]).bits);
  }
  EXPECT_THROW(reader.read("moment1", "none", view_of(values.data(), 1)), UserError);
  EXPECT_THROW(reader.read("moment9", "ln_f.weight", view_of(values.data(), 17)), UserError);
}

TEST(Checkpoint, KeepsBf16Bits) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  const layout::Plan plan({{"w", {5}, false, false}}, {});
  const std::vector<Bf16> values = {Bf16(1.5F), Bf16(-0.0F), Bf16(3e38F), Bf16(1e-40F), Bf16(0.1F)};
  const Slab slab{"parameter", ParameterIndex(0), 0, view_of(values.data(), 5)};
  const auto saved = save_checkpoint(scratch.path(), plan, facts_of(1), {&slab, 1}, 0, *world);
  std::vector<Bf16> back(5);
  const MutableSlab wanted{"parameter", ParameterIndex(0), 0, view_of(back.data(), 5)};
  load_checkpoint(saved.directory, plan, facts_of(1).model, {&wanted, 1}, *world);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(back[i].bits, values[i].bits);
  std::vector<float> wide(5);
  CheckpointReader(saved.directory).read("parameter", "w", view_of(wide.data(), 5));
  EXPECT_EQ(wide[0], 1.5F);
}

TEST(Checkpoint, CanBeWantedWholeByEveryRank) {
  const test::ScratchDirectory scratch;
  save_on(2, scratch.path(), 3);
  test::SequentialRanks(3).run([&](comm::World& world) {
    std::vector<float> values(61 * 16);
    const MutableSlab all{"master", ParameterIndex(0), 0, view_of(values.data(), 61 * 16)};
    load_checkpoint(scratch / "checkpoints/step-00000003", plan_for(3), facts_of(3).model,
                    {&all, 1}, world);
    EXPECT_EQ(values[975], value_of(0, ParameterIndex(0), 975));
  });
}

/// A parameter's state may be missing in the file or in the destination if an optimizer does not
/// need it: older checkpoints of Muon hold more than a run needs.
TEST(Checkpoint, AStateMayLackAParameter) {
  constexpr ParameterIndex lacking{2};
  const auto without = [](auto slabs) {
    std::erase_if(slabs, [](const auto& slab) {
      return slab.state == "moment1" && slab.parameter == lacking;
    });
    return slabs;
  };
  const test::ScratchDirectory scratch;
  save_on(3, scratch.path(), 1);
  test::SequentialRanks(3).run([&](comm::World& world) {
    const layout::Plan plan = plan_for(3);
    Owned owned(plan, world.rank());
    owned.fill();
    save_checkpoint(scratch.path(), plan, facts_of(2), without(owned.slabs()), 0, world);
  });
  for (const char* step : {"checkpoints/step-00000001", "checkpoints/step-00000002"})
    test::SequentialRanks(2).run([&](comm::World& world) {
      const layout::Plan plan = plan_for(2);
      Owned owned(plan, world.rank());
      load_checkpoint(scratch / step, plan, facts_of(0).model, without(owned.wanted()), world);
      owned.each([&](std::size_t s, const layout::Piece& piece, float* data) {
        const bool read = states[s] != "moment1" || piece.parameter != lacking;
        for (std::int64_t i = 0; i < piece.elements; ++i)
          ASSERT_EQ(data[i],
                    read ? value_of(s, piece.parameter, piece.parameter_begin + i) : -1.0F);
      });
    });
  EXPECT_THAT(refusal_of(scratch / "checkpoints/step-00000002"),
              HasSubstr("does not hold 'moment1' of h.0.fc.weight"));
}

TEST(Checkpoint, ShowsWholeTensorsToHdf5) {
  const test::ScratchDirectory scratch;
  save_on(3, scratch.path(), 3);
  const h5::File file = h5::open_file(scratch / "checkpoints/step-00000003/manifest.h5");
  const auto tensor = h5::Dataset::open(file.get(), "tensors/master/wte.weight");
  EXPECT_THAT(h5::read_attribute<std::vector<std::int64_t>>(tensor.id(), "shape"),
              ElementsAre(61, 16));
  const auto values = tensor.read_all<float>();
  ASSERT_EQ(values.size(), 61U * 16U);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], value_of(0, ParameterIndex(0), static_cast<std::int64_t>(i)));
}

TEST(Checkpoint, RefusesSlabsThatOverlapOrLeaveAHole) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  const layout::Plan plan({{"w", {5}, false, false}}, {});
  const std::vector<float> values(5);
  const Slab part{"master", ParameterIndex(0), 0, view_of(values.data(), 4)};
  EXPECT_THROW(save_checkpoint(scratch.path(), plan, facts_of(1), {&part, 1}, 0, *world),
               ContractError);
  const Slab twice[] = {part, {"master", ParameterIndex(0), 3, view_of(values.data(), 2)}};
  EXPECT_THROW(save_checkpoint(scratch.path(), plan, facts_of(1), twice, 0, *world), ContractError);
  EXPECT_TRUE(list_checkpoints(scratch.path()).empty());
}

TEST(Checkpoint, ADirectoryThatCannotBeListedIsNotAnEmptyOne) {
  const test::ScratchDirectory scratch;
  EXPECT_TRUE(list_checkpoints(scratch.path()).empty());
  std::filesystem::create_symlink("checkpoints", scratch / "checkpoints");
  EXPECT_THROW(list_checkpoints(scratch.path()), StorageError);
}

TEST(Pruning, KeepsTheNewestAndPointsLatestAtTheLastWritten) {
  const test::ScratchDirectory scratch;
  for (const std::int64_t step : {100, 200, 300, 400}) save_on(2, scratch.path(), step, 2);
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("latest", "step-00000300", "step-00000400"));
  EXPECT_EQ(test::bytes_of(scratch / "checkpoints/latest"), "step-00000400\n");
  save_on(2, scratch.path(), 100, 2);  // older than all: kept, because it was just written
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("latest", "step-00000100", "step-00000300", "step-00000400"));
  EXPECT_EQ(newest_checkpoint(scratch.path())->step, 400);
}

TEST(Pruning, NeverCountsADamagedOneAsKept) {
  const test::ScratchDirectory scratch;
  for (const std::int64_t step : {1, 2, 3}) save_on(1, scratch.path(), step);
  fs::remove(scratch / "checkpoints/step-00000003/rank-00000.h5");
  save_on(1, scratch.path(), 4, 2);
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("latest", "step-00000002", "step-00000003", "step-00000004"));
}

TEST(Pruning, NeverRemovesMilestones) {
  const test::ScratchDirectory scratch;
  for (const std::int64_t step : {100, 200, 300, 400, 500, 600, 700})
    save_on(2, scratch.path(), step, {2, 300});
  // The two newest include a milestone, which counts as one of them.
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("latest", "step-00000300", "step-00000600", "step-00000700"));
  save_on(2, scratch.path(), 800, {1, 300});
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("latest", "step-00000300", "step-00000600", "step-00000800"));
}

TEST(Pruning, AMilestoneStaysOneUnderAnotherKeepEvery) {
  const test::ScratchDirectory scratch;
  for (const std::int64_t step : {100, 200, 300, 400}) save_on(1, scratch.path(), step, {1, 200});
  save_on(1, scratch.path(), 500, {1, 300});  // none of its own is left to keep
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("latest", "step-00000200", "step-00000400", "step-00000500"));
  save_on(1, scratch.path(), 600, 1);  // off: neither new ones nor fewer old ones
  save_on(1, scratch.path(), 700, 1);
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("latest", "step-00000200", "step-00000400", "step-00000700"));
}

TEST(Pruning, WhatWasNoMilestoneWhenItWasWrittenIsOneUnderTheKeyOfNow) {
  const test::ScratchDirectory scratch;
  for (const std::int64_t step : {100, 200, 300}) save_on(1, scratch.path(), step);
  save_on(1, scratch.path(), 400, {1, 200});
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("latest", "step-00000200", "step-00000400"));
}

TEST(Pruning, ADamagedMilestoneIsLeftAndNotCounted) {
  const test::ScratchDirectory scratch;
  for (const std::int64_t step : {100, 200, 300}) save_on(1, scratch.path(), step, {0, 200});
  fs::remove(scratch / "checkpoints/step-00000200/rank-00000.h5");
  save_on(1, scratch.path(), 400, {2, 200});
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("latest", "step-00000200", "step-00000300", "step-00000400"));
}

TEST(Checkpoint, ListShowsWhatTheManifestHolds) {
  const test::ScratchDirectory scratch;
  save_on(3, scratch.path(), 100, {0, 200});
  save_on(2, scratch.path(), 200, {0, 200});
  const auto found = list_checkpoints(scratch.path());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_FALSE(found[0].milestone);
  EXPECT_TRUE(found[1].milestone);
  EXPECT_EQ(found[0].ranks, 3);
  EXPECT_EQ(found[1].ranks, 2);
  std::uintmax_t bytes = 0;
  for (int rank = 0; rank < 3; ++rank)
    bytes += fs::file_size(found[0].directory + "/" + rank_file(rank));
  EXPECT_EQ(static_cast<std::uintmax_t>(found[0].bytes), bytes);
  EXPECT_EQ(found[0].date_and_time.substr(0, 2), "20");
}

TEST(Commit, ReplacesACheckpointOfTheSameStep) {
  const test::ScratchDirectory scratch;
  save_on(3, scratch.path(), 5);
  save_on(2, scratch.path(), 5);
  EXPECT_THAT(names_in(scratch / "checkpoints"), ElementsAre("latest", "step-00000005"));
  EXPECT_THAT(names_in(scratch / "checkpoints/step-00000005"),
              ElementsAre("manifest.h5", "manifest.xxh64", "rank-00000.h5", "rank-00001.h5"));
  EXPECT_EQ(refusal_of(scratch / "checkpoints/step-00000005"), "accepted");
}

TEST(Commit, NeverShowsAHalfWrittenCheckpointAndClearsTheOneOfACrash) {
  const test::ScratchDirectory scratch;
  save_on(1, scratch.path(), 1);
  const std::string stale = scratch / "checkpoints/step-00000002.tmp";
  fs::copy(scratch / "checkpoints/step-00000001", stale);  // complete except for its name
  EXPECT_EQ(newest_checkpoint(scratch.path())->step, 1);
  ASSERT_EQ(list_checkpoints(scratch.path()).size(), 1U);
  save_on(1, scratch.path(), 3);
  EXPECT_FALSE(fs::exists(stale));
}

TEST(Commit, SurvivesBeingKilledAtAnyMoment) {
  const test::ScratchDirectory scratch;
  save_on(1, scratch.path(), 1);
  for (useconds_t delay = 0; delay < 20'000; delay += 1'300) {
    const auto world = comm::make_self_world();
    test::DoomedChild child([] {},
                            [&] {
                              for (std::int64_t step = 2;; ++step)
                                save_small(scratch.path(), step % 10 + 2, *world, 2);
                            });
    ::usleep(delay);  // the moment of the kill varies
    child.kill();
    const auto all = list_checkpoints(scratch.path());
    ASSERT_FALSE(all.empty());
    for (const FoundCheckpoint& one : all) {
      EXPECT_TRUE(one.whole) << one.directory << ": " << one.problem;
      EXPECT_EQ(refusal_of(one.directory), "accepted");
    }
  }
}

TEST(Damage, OfAPieceIsNamedWithTheWayOut) {
  const test::ScratchDirectory scratch;
  save_on(2, scratch.path(), 400);
  save_on(2, scratch.path(), 500);
  const std::string directory = scratch / "checkpoints/step-00000500";
  const float needle = value_of(1, ParameterIndex(2), 700);
  const std::string pattern(reinterpret_cast<const char*>(&needle), sizeof needle);
  int flipped = 0;
  for (const char* name : {"/rank-00000.h5", "/rank-00001.h5"})
    if (const auto position = test::bytes_of(directory + name).find(pattern);
        position != std::string::npos) {
      flip_bit(directory + name, position);
      ++flipped;
    }
  ASSERT_EQ(flipped, 1);
  EXPECT_THAT(
      refusal_of(directory),
      AllOf(HasSubstr("step-00000500/rank-0000"),
            HasSubstr("error: the checkpoint is damaged: moment1/h.0.fc.weight does not "
                      "match its checksum"),
            HasSubstr("remove step-00000500 to resume from step-00000400, which is whole")));
}

TEST(Damage, OfAPieceThatNoRankReadsWholeIsNamedAsWell) {
  const test::ScratchDirectory scratch;
  save_on(1, scratch.path(), 500);
  const std::string directory = scratch / "checkpoints/step-00000500";
  const float needle = value_of(1, ParameterIndex(0), 500);
  const std::string pattern(reinterpret_cast<const char*>(&needle), sizeof needle);
  const std::string path = directory + "/rank-00000.h5";
  const auto position = test::bytes_of(path).find(pattern);
  ASSERT_NE(position, std::string::npos);
  flip_bit(path, position);
  for (const int ranks : {2, 3, 5})
    EXPECT_THAT(refusal_of(directory, ranks),
                HasSubstr("step-00000500/rank-00000.h5: error: the checkpoint is damaged: "
                          "moment1/wte.weight does not match its checksum"));
}

TEST(Damage, OfAFileIsNamedWithTheWayOut) {
  const test::ScratchDirectory scratch;
  save_on(2, scratch.path(), 500);
  const std::string directory = scratch / "checkpoints/step-00000500";
  const std::string piece = directory + "/rank-00001.h5";
  const std::string whole = test::bytes_of(piece);

  fs::resize_file(piece, whole.size() - 100);
  EXPECT_THAT(refusal_of(directory), HasSubstr("rank-00001.h5 has"));
  EXPECT_FALSE(list_checkpoints(scratch.path()).back().whole);
  test::write_bytes(piece, std::string(whole.size(), 'x'));
  EXPECT_THAT(refusal_of(directory), HasSubstr("rank-00001.h5: error: the checkpoint is damaged"));
  fs::remove(piece);
  EXPECT_THAT(refusal_of(directory), AllOf(HasSubstr("rank-00001.h5 is missing"),
                                           HasSubstr("no older whole checkpoint is left")));
  test::write_bytes(piece, whole);
  EXPECT_EQ(refusal_of(directory), "accepted");

  fs::resize_file(directory + "/manifest.h5", 2000);
  EXPECT_THAT(refusal_of(directory),
              HasSubstr("manifest.h5: error: the checkpoint is truncated or damaged"));
  fs::remove(directory + "/manifest.h5");
  EXPECT_THAT(refusal_of(directory), HasSubstr("not a checkpoint: there is no manifest.h5"));
}

/// As if the manifest and its sum had been changed together.
void rewrite_sum(const std::string& directory) {
  test::write_bytes(directory + "/manifest.xxh64", manifest_sum(directory));
}

TEST(Damage, OfTheManifestNeverPasses) {
  const test::ScratchDirectory scratch;
  save_on(2, scratch.path(), 5);
  const std::string directory = scratch / "checkpoints/step-00000005";
  {
    const std::string path = directory + "/manifest.h5";
    const h5::File file(TRIREME_H5(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)));
    h5::write_attribute(file.get(), "next_sample", std::uint64_t{41});
  }
  EXPECT_THAT(refusal_of(directory), HasSubstr("manifest.xxh64 does not match it"));
  rewrite_sum(directory);
  EXPECT_THAT(refusal_of(directory), HasSubstr("its manifest contradicts itself"));
  fs::remove(directory + "/manifest.xxh64");
  EXPECT_THAT(refusal_of(directory), HasSubstr("manifest.xxh64: error: missing"));
}

TEST(Damage, OfAnyBitIsFoundAndNamedWithTheWayOut) {
  const test::ScratchDirectory scratch;
  save_on(2, scratch.path(), 4);
  save_on(2, scratch.path(), 5);
  const std::string directory = scratch / "checkpoints/step-00000005";
  std::mt19937 random(1);
  for (const char* name : {"/manifest.h5", "/manifest.xxh64", "/rank-00000.h5", "/rank-00001.h5"}) {
    const std::string whole = test::bytes_of(directory + name);
    for (int attempt = 0; attempt < 100; ++attempt) {
      std::string bytes = whole;
      const auto position = random() % bytes.size();
      bytes[position] = static_cast<char>(bytes[position] ^ (1 << (random() % 8)));
      test::write_bytes(directory + name, bytes);
      // If the sum does not match, the error names the manifest.
      const std::string named = std::string(name) == "/manifest.xxh64" ? "/manifest.h5" : name;
      ASSERT_THAT(refusal_of(directory, 1),
                  AllOf(HasSubstr("step-00000005" + named), HasSubstr("damaged"),
                        HasSubstr("remove step-00000005 to resume from step-00000004")))
          << "byte " << position;
    }
    test::write_bytes(directory + name, whole);
  }
  EXPECT_EQ(refusal_of(directory), "accepted");
}

TEST(Version, OfAnotherFormatIsRefused) {
  const test::ScratchDirectory scratch;
  save_on(1, scratch.path(), 5);
  const std::string directory = scratch / "checkpoints/step-00000005";
  {
    const std::string path = directory + "/manifest.h5";
    const h5::File file(TRIREME_H5(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)));
    h5::write_attribute(file.get(), "version", std::vector<std::int64_t>{3, 0});
  }
  rewrite_sum(directory);
  EXPECT_THAT(refusal_of(directory),
              HasSubstr("checkpoint format 3.0; this trireme reads format 2.x"));
}

TEST(Model, ThatDiffersIsNamedByItsFirstDifference) {
  const test::ScratchDirectory scratch;
  save_on(1, scratch.path(), 5);
  const auto world = comm::make_self_world();
  const std::string directory = scratch / "checkpoints/step-00000005";
  const auto refusal = [&](const layout::Plan& plan, const NameValues& model) {
    try {
      load_checkpoint(directory, plan, model, {}, *world);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal(plan_for(1), facts_of(5).model), "accepted");
  EXPECT_THAT(refusal(plan_for(1), {{"layers", "6"}, {"channels", "99"}}),
              HasSubstr("step-00000005: error: the checkpoint is of another model: layers is 1 "
                        "there and 6 in this run"));
  EXPECT_THAT(refusal(plan_for(1), {{"layers", "1"}}),
              HasSubstr("channels is 16 there and not given in this run"));
  auto table = small_model();
  table[2].shape = {47, 16};
  EXPECT_THAT(refusal(layout::Plan(table, {}), facts_of(5).model),
              HasSubstr("parameter 2 is h.0.fc.weight [48, 16] there and h.0.fc.weight [47, 16]"));
}

TEST(FullDisk, EndsTheSaveOnAllRanksAndLeavesTheOlderCheckpoint) {
  const test::ScratchDirectory scratch;
  save_on(2, scratch.path(), 1);
  const auto fill = [&] { save_on(2, scratch.path(), 2); };
  EXPECT_EXIT(test::exit_with_a_full_disk(10'000, fill), testing::ExitedWithCode(3),
              "failed: File too large");
  EXPECT_THAT(names_in(scratch / "checkpoints"), ElementsAre("latest", "step-00000001"));
  EXPECT_EQ(refusal_of(scratch / "checkpoints/step-00000001"), "accepted");
}

TEST(H5py, ReadsWholeTensorsWithoutUs) {
  if (std::system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") != 0)
    GTEST_SKIP() << "skipped: /usr/bin/python3 has no h5py";
  const test::ScratchDirectory scratch;
  save_on(3, scratch.path(), 3);
  test::write_bytes(scratch / "read.py",
                    "import h5py, sys\n"
                    "f = h5py.File(sys.argv[1])\n"
                    "assert f.attrs['filetype'] == 'trireme-checkpoint'\n"
                    "w = f['tensors/moment1/wte.weight']\n"
                    "x = w[:].reshape(w.attrs['shape'])\n"
                    "assert x.shape == (61, 16), x.shape\n"
                    "assert x[60, 15] == 100000 + 975 / 8, x[60, 15]\n"
                    "assert f['model'].attrs['channels'] == '16'\n");
  const std::string command = "cd / && /usr/bin/python3 " + (scratch / "read.py") + " " +
                              (scratch / "checkpoints/step-00000003/manifest.h5");
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace trireme::record
