// SPDX-License-Identifier: Apache-2.0
#include "weights/initial_weights.hpp"

#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <vector>

#include <gmock/gmock.h>

#include "base/hash.hpp"

#include "model/layers.hpp"

#include "comm/control/together.hpp"

#include "weights/checkpoint_weights.hpp"
#include "weights/folder.hpp"
#include "weights/import.hpp"
#include "weights/open.hpp"

namespace trireme::weights {
namespace {

using ::testing::HasSubstr;

/// Rank 0's folder and a place for results, known to all ranks, kept until all are done.
struct Shared {
  explicit Shared(
      comm::World& all,
      const model::GptShape& shape = tiny_shape(),
      const std::function<void(Folder&)>& change = [](Folder&) {})
      : world(all) {
    if (world.rank() == 0) {
      mine = std::make_unique<Folder>(shape);
      change(*mine);
      results = std::make_unique<test::ScratchDirectory>();
    }
    source = world.broadcast(mine ? mine->write() : "", 0);
    place = world.broadcast(results ? results->path() : "", 0);
  }
  ~Shared() { world.barrier(); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  comm::World& world;
  std::unique_ptr<Folder> mine;
  std::unique_ptr<test::ScratchDirectory> results;
  std::string source, place;
};

struct Loaded {
  Origin origin;
  std::vector<std::string> notes;
};

/// Loads the values that every rank keeps with many small buckets; compares with `expected`.
Loaded load(const std::string& path,
            const model::GptShape& shape,
            comm::World& world,
            const std::function<float(std::size_t p, std::int64_t i)>& expected) {
  InitialWeights initial(open_together(path, true, world, [](const StoredModel&) {}), shape, 5,
                         world);
  const layout::Plan plan(model::parameter_table(shape),
                          {.ranks = world.size(), .bucket_elements = 100});
  std::vector<std::uint64_t> hashes(plan.parameters().size());
  comm::together(world, [&] {
    for (std::size_t b = 0; b < plan.buckets().size(); ++b)
      for (const layout::Piece& piece :
           plan.find_pieces(static_cast<BucketIndex>(b), world.rank())) {
        std::vector<float> values(static_cast<std::size_t>(piece.elements));
        const View view = view_of(values.data(), piece.elements);
        initial.read(piece.parameter, piece.parameter_begin, view);
        hashes[at(piece.parameter)] += hash_elements(view, piece.parameter_begin);
        for (std::int64_t i = 0; i < piece.elements; ++i)
          ASSERT_EQ(values[static_cast<std::size_t>(i)],
                    expected(at(piece.parameter), piece.parameter_begin + i));
      }
  });
  return {initial.settle(hashes), initial.notes()};
}

TEST(InitialWeights, AreTheSameOnEveryRankCount) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world);
  const Loaded loaded = load(shared.source, tiny_shape(), *world, value_of);
  EXPECT_TRUE(loaded.notes.empty());
  EXPECT_EQ(loaded.origin.format, "huggingface");
  // For any number of ranks, the hash is that of whole parameters.
  std::vector<std::uint64_t> hashes;
  const auto table = model::parameter_table(tiny_shape());
  for (std::size_t p = 0; p < table.size(); ++p) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < table[p].elements(); ++i) values.push_back(value_of(p, i));
    hashes.push_back(hash_elements(view_of(values.data(), std::ssize(values)), 0));
  }
  EXPECT_EQ(loaded.origin.hash, weights_hash(table, hashes));
}

/// Bytes that this process has read by system calls.
std::int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string word;
  std::int64_t bytes = 0;
  io >> word >> bytes;
  EXPECT_EQ(word, "rchar:");
  return bytes;
}

TEST(InitialWeights, EachRankReadsTheBytesThatItKeepsAndNoOthers) {
  const auto world = comm::make_mpi_world();
  const model::GptShape shape{
      .layers = 2, .heads = 2, .channels = 64, .context = 32, .vocabulary = 300};
  const Shared shared(*world, shape);
  InitialWeights initial(open_together(shared.source, true, *world, [](const StoredModel&) {}),
                         shape, 5, *world);
  const layout::Plan plan(model::parameter_table(shape), {.ranks = world->size()});
  std::int64_t wanted = 0;
  std::vector<float> values;
  const std::int64_t before = bytes_read();
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    for (const layout::Piece& piece :
         plan.find_pieces(static_cast<BucketIndex>(b), world->rank())) {
      values.resize(static_cast<std::size_t>(piece.elements));
      initial.read(piece.parameter, piece.parameter_begin, view_of(values.data(), piece.elements));
      wanted += 4 * piece.elements;
    }
  const std::int64_t used = bytes_read() - before;
  EXPECT_GE(used, wanted);
  EXPECT_LE(used, wanted + 4096) << "the rest is /proc/self/io's own";
}

TEST(InitialWeights, ComeOutOfACheckpointThatAnyRanksWrote) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world);
  ImportRequest request{
      .source = shared.source, .output = shared.place + "/run", .tokenizer = {}, .build = {}};
  request.without_tokenizer = true;
  const Imported imported = import_model(request, *world);
  const Loaded loaded = load(request.output, tiny_shape(), *world, value_of);
  EXPECT_EQ(loaded.origin.format, "checkpoint");
  EXPECT_EQ(loaded.origin.hash, imported.origin.hash);
  if (world->rank() == 0) {  // one rank reads what several wrote
    const auto alone = comm::make_self_world();
    EXPECT_EQ(load(request.output, tiny_shape(), *alone, value_of).origin.hash,
              imported.origin.hash);
  }
  world->barrier();
}

TEST(InitialWeights, AddTheMeanToTheVocabularyAndRandomPositions) {
  const auto world = comm::make_mpi_world();
  for (const bool tied : {true, false}) {
    model::GptShape there = tiny_shape();
    there.tied_head = tied;
    const Shared shared(*world, there);
    model::GptShape here = there;
    here.vocabulary = 14;
    here.context = 8;
    const auto table = model::parameter_table(here);
    const auto rows = [&](std::size_t p) { return model::parameter_table(there)[p].shape[0]; };
    const Loaded loaded = load(shared.source, here, *world, [&](std::size_t p, std::int64_t i) {
      if (i < rows(p) * (table[p].elements() / table[p].shape[0]))
        return value_of(p, i);
      if (table[p].name == "wpe.weight") {
        float value = 0;
        model::Layers(here).registry.initialize(static_cast<ParameterIndex>(p), 5,
                                                view_of(&value, 1), i);
        return value;
      }
      double sum = 0;
      for (std::int64_t row = 0; row < 9; ++row) sum += value_of(p, row * 6 + i % 6);
      return static_cast<float>(sum / 9);
    });
    ASSERT_EQ(loaded.notes.size(), tied ? 2U : 3U);
    EXPECT_THAT(loaded.notes[0], HasSubstr("wte.weight: 5 rows are added to the 9 in"));
  }
}

TEST(InitialWeights, LeaveRowsOut) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world);
  model::GptShape here = tiny_shape();
  here.vocabulary = 4;
  here.context = 2;
  const Loaded loaded = load(shared.source, here, *world, value_of);
  EXPECT_EQ(loaded.notes.size(), 2U);
}

TEST(InitialWeights, MustBeFinite) {
  const auto world = comm::make_mpi_world();
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Shared shared(*world, tiny_shape(), [&](Folder& folder) {
      std::memcpy(folder.tensors.at("transformer.h.1.mlp.c_fc.weight").bytes.data() + 40, &bad, 4);
    });
    const std::string told = mistakes_of([&] {
      load(shared.source, tiny_shape(), *world,
           [&](std::size_t p, std::int64_t i) { return value_of(p, i); });
    });
    EXPECT_THAT(told, HasSubstr("tensor 'transformer.h.1.mlp.c_fc.weight'"));
    EXPECT_THAT(told, HasSubstr("weights must be finite"));
  }
}

TEST(InitialWeights, NoticeDamageInACheckpointWhereverItIs) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world);
  ImportRequest request{
      .source = shared.source, .output = shared.place + "/run", .tokenizer = {}, .build = {}};
  request.without_tokenizer = true;
  import_model(request, *world);
  const StoredModel stored = open_model(request.output);
  model::GptShape cut = tiny_shape();
  cut.vocabulary = 4;
  struct Case {
    std::size_t tensor;
    std::size_t byte;  // of its last extent, from the end
    model::GptShape shape;
  };
  // An element that is kept, and one in an unused row that no rank reads.
  for (const Case& one : {Case{4, 2, tiny_shape()}, Case{0, 2, cut}}) {
    const Extent& extent = stored.tensors.at(one.tensor).extents.back();
    const std::string file = stored.files.at(static_cast<std::size_t>(extent.file));
    const auto at = static_cast<std::size_t>(extent.offset + extent.count * 4) - one.byte;
    const std::string good = test::bytes_of(file);
    world->barrier();
    if (world->rank() == 0) {
      std::string bad = good;
      bad[at] ^= 1;
      test::write_bytes(file, bad);
    }
    world->barrier();
    const std::string told = mistakes_of([&] {
      InitialWeights initial(open_together(request.output, true, *world, [](const StoredModel&) {}),
                             one.shape, 5, *world);
      const layout::Plan plan(model::parameter_table(one.shape), {.ranks = world->size()});
      std::vector<std::uint64_t> hashes(plan.parameters().size());
      for (std::size_t b = 0; b < plan.buckets().size(); ++b)
        for (const layout::Piece& piece :
             plan.find_pieces(static_cast<BucketIndex>(b), world->rank())) {
          std::vector<float> values(static_cast<std::size_t>(piece.elements));
          const View view = view_of(values.data(), piece.elements);
          initial.read(piece.parameter, piece.parameter_begin, view);
          hashes[trireme::at(piece.parameter)] += hash_elements(view, piece.parameter_begin);
        }
      initial.settle(hashes);
    });
    EXPECT_THAT(told, HasSubstr("the checkpoint is damaged: " + stored.tensors[one.tensor].name));
    world->barrier();
    if (world->rank() == 0)
      test::write_bytes(file, good);
    world->barrier();
  }
}

TEST(InitialWeights, AHostileNameIsReportedOnEveryRank) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world, tiny_shape(), [](Folder& folder) {
    folder.tensors[R"(a\u001eb\u001fc\n)"] = {"F32", {1}, "1234"};
  });
  const std::string told =
      mistakes_of([&] { open_together(shared.source, true, *world, [](const StoredModel&) {}); });
  EXPECT_THAT(told, HasSubstr("a?b?c?: unexpected tensor"));
}

TEST(InitialWeights, AMistakeIsReportedOnEveryRank) {
  const auto world = comm::make_mpi_world();
  const std::string told = mistakes_of(
      [&] { open_together("/nowhere/at/all", true, *world, [](const StoredModel&) {}); });
  EXPECT_THAT(told, HasSubstr("/nowhere/at/all: error: no such file or directory"));
}

}  // namespace
}  // namespace trireme::weights
