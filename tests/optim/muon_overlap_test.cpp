// SPDX-License-Identifier: Apache-2.0
// The order in which Muon's matrices are sent, orthogonalized and gathered. A communicator between
// the optimizer and the real one records each call and the matrices that are orthogonal then.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "comm/communicator.hpp"
#include "comm/control/world.hpp"

#include "optim/training.hpp"

namespace trireme::optim {
namespace {

using namespace trireme::testing;
using ::testing::ElementsAre;

/// The enqueued calls in their order: "send 0", "send_back 0" of rounds; "gather 4" of buckets.
struct Notes {
  std::vector<std::string> calls;
  /// For each call the rounds whose matrices, of those that this rank owns, are orthogonal.
  std::vector<std::vector<std::size_t>> orthogonal;
  std::vector<comm::MessageGroup> groups;
  std::vector<std::vector<float>> arrived;  // by round, as received

  void add(const char* what, std::size_t which) {
    calls.push_back(what + std::to_string(which));
    std::vector<std::size_t>& rounds = orthogonal.emplace_back();
    for (std::size_t r = 0; r < arrived.size(); ++r)
      if (!arrived[r].empty() && arrived[r] != values(r))
        rounds.push_back(r);
  }
  [[nodiscard]] std::vector<float> values(std::size_t round) const {
    std::vector<float> all;
    for (const comm::Message& one : groups[round].incoming)
      all.insert(all.end(), one.at.as<float>(), one.at.as<float>() + one.at.elements);
    return all;
  }
};

class RecordedTransfer final : public comm::Transfer {
 public:
  RecordedTransfer(std::unique_ptr<comm::Transfer> transfer, Notes& notes)
      : transfer_(std::move(transfer)), notes_(notes) {}
  /// Waits for the matrices, to compare them with their values later.
  void enqueue(std::size_t group, comm::Direction direction, device::Stream& stream) override {
    notes_.add(direction == comm::Direction::send ? "send " : "send_back ", group);
    transfer_->enqueue(group, direction, stream);
    if (direction == comm::Direction::send_back)
      return;
    stream.synchronize();
    notes_.arrived[group] = notes_.values(group);
  }

 private:
  std::unique_ptr<comm::Transfer> transfer_;
  Notes& notes_;
};

class RecordingCommunicator final : public comm::Communicator {
 public:
  RecordingCommunicator(comm::Communicator& inner, comm::World& world, Notes& notes)
      : Communicator(inner.rank(), inner.size()), inner_(inner), world_(world), notes_(notes) {}

  [[nodiscard]] std::string_view name() const override { return inner_.name(); }
  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    return inner_.allocate(bytes, what);
  }
  std::unique_ptr<comm::Shards> shards(View full) override { return inner_.shards(full); }
  void enqueue(comm::Operation operation,
               const comm::Shards& shards,
               BucketIndex bucket,
               device::Stream& stream) override {
    if (operation == comm::Operation::all_gather)
      notes_.add("gather ", at(bucket));
    inner_.enqueue(operation, shards, bucket, stream);
  }
  std::unique_ptr<comm::Transfer> transfer(const std::vector<comm::MessageGroup>& groups) override {
    notes_.groups = groups;
    notes_.arrived.resize(groups.size());
    return std::make_unique<RecordedTransfer>(comm::make_transfer(world_, inner_, groups), notes_);
  }

 private:
  comm::Communicator& inner_;
  comm::World& world_;
  Notes& notes_;
};

TrainingSetting setting_of(std::vector<layout::Parameter> table, std::int64_t bucket_elements) {
  TrainingSetting setting;
  setting.kind = Kind::muon;
  setting.table = std::move(table);
  setting.parallel.shard = layout::Shard::optimizer;
  setting.parallel.reduction = comm::Reduction::ordered;
  setting.parallel.bucket_elements.value = bucket_elements;
  return setting;
}

Notes notes_of_a_step(const TrainingSetting& setting, bool held) {
  omp_set_num_threads(1);  // ranks share the cores
  const auto world = comm::make_mpi_world();
  const auto device = device::make_cpu_device(1);
  const auto compute = device->make_stream(device::StreamMode::inlined, "compute");
  const auto inner = comm::make_communicator(comm::Transport::automatic, setting.parallel.reduction,
                                             *world, *device);
  Notes notes;
  RecordingCommunicator communicator(*inner, *world, notes);
  Training training(setting, *world, communicator, *device, *compute);
  training.engine().hold_collectives(held);
  notes.calls.clear();
  notes.orthogonal.clear();
  training.backward(1);
  training.update(1);
  training.engine().wait_for_parameters();
  world->barrier();
  return notes;
}

using Rounds = std::vector<std::size_t>;

/// Three buckets, each with one matrix per rank, after an embedding.
class MuonOverlap : public ::testing::Test {
 protected:
  void SetUp() override {
    const int ranks = comm::make_mpi_world()->size();
    if (ranks == 1)
      GTEST_SKIP() << "one rank sends nothing";
    std::vector<layout::Parameter> table = {{"wte", {23, 17}, true, true}};
    for (int i = 0; i < 3 * ranks; ++i)
      table.push_back({"w" + std::to_string(i), {24, 24}, false, true, {24}});
    setting_ = setting_of(table, 24 * 24 * ranks);
  }

  TrainingSetting setting_;
};

TEST_F(MuonOverlap, EnqueuesTransfersAndGathersBeforeTheProductsOfOtherRounds) {
  const Notes notes = notes_of_a_step(setting_, false);
  EXPECT_THAT(notes.calls,
              ElementsAre("send 0", "send 1", "send 2", "gather 3", "send_back 0", "send_back 1",
                          "gather 2", "send_back 2", "gather 1", "gather 0"));
  EXPECT_THAT(notes.orthogonal,
              ElementsAre(Rounds{}, Rounds{}, Rounds{}, Rounds{}, Rounds{0}, Rounds{0, 1},
                          Rounds{0, 1}, Rounds{0, 1, 2}, Rounds{0, 1, 2}, Rounds{0, 1, 2}));
}

/// A held transfer begins when compute waits for it: send just before the round's products,
/// send_back after those of the next round. Gathers wait for the next step.
TEST_F(MuonOverlap, ComputeWaitsForARoundOnlyWhenItNeedsIt) {
  const Notes notes = notes_of_a_step(setting_, true);
  EXPECT_THAT(notes.calls,
              ElementsAre("send 0", "send 1", "send 2", "send_back 0", "send_back 1", "send_back 2",
                          "gather 3", "gather 2", "gather 1", "gather 0"));
  EXPECT_THAT(notes.orthogonal, ElementsAre(Rounds{}, Rounds{0}, Rounds{0, 1}, Rounds{0, 1},
                                            Rounds{0, 1, 2}, Rounds{0, 1, 2}, Rounds{0, 1, 2},
                                            Rounds{0, 1, 2}, Rounds{0, 1, 2}, Rounds{0, 1, 2}));
}

/// The owner of a large matrix finishes the first round later than the others, which orthogonalize
/// all of theirs meanwhile. The order of the queue is the same on all ranks.
TEST(MuonOverlapWithUnequalOwners, RanksWithLessToDoGoAheadInTheSameOrder) {
  const auto world = comm::make_mpi_world();
  if (world->size() != 2)
    GTEST_SKIP() << "the owners are those of two ranks";
  const auto setting = setting_of({{"wte", {23, 17}, true, true},
                                   {"large", {48, 48}, false, true, {48}},
                                   {"a", {24, 24}, false, true, {24}},
                                   {"b", {24, 24}, false, true, {24}},
                                   {"c", {24, 24}, false, true, {24}}},
                                  1);
  const Notes notes = notes_of_a_step(setting, false);
  EXPECT_THAT(notes.calls, ElementsAre("send 0", "send 1", "send 2", "send 3", "gather 4",
                                       "send_back 0", "send_back 1", "gather 3", "send_back 2",
                                       "gather 2", "send_back 3", "gather 1", "gather 0"));
  const std::size_t first_gather = 7;  // of a bucket with matrices
  EXPECT_EQ(notes.orthogonal[first_gather], world->rank() == 0 ? Rounds{0} : (Rounds{1, 2, 3}));
}

TEST(MatrixRounds, ARankWorksAheadUntilTheBusiestHasFinishedTheRound) {
  const auto rounds_of = [](const std::vector<std::vector<double>>& flops) {
    std::vector<MatrixRound> rounds;
    for (const auto& one : flops) rounds.push_back({BucketIndex{0}, one});
    return rounds;
  };
  const auto equal = rounds_of({{1, 1}, {1, 1}, {1, 1}, {1, 1}});
  EXPECT_THAT(rounds_before_updates(equal, 0), ElementsAre(1, 2, 3, 3));
  const auto large_first = rounds_of({{3, 0}, {0, 1}, {0, 1}, {0, 1}});
  EXPECT_THAT(rounds_before_updates(large_first, 0), ElementsAre(1, 2, 3, 3));
  EXPECT_THAT(rounds_before_updates(large_first, 1), ElementsAre(3, 3, 3, 3));
  const auto one_each = rounds_of({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}});
  EXPECT_THAT(rounds_before_updates(one_each, 0), ElementsAre(1, 2, 2));
  EXPECT_THAT(rounds_before_updates(one_each, 1), ElementsAre(1, 2, 2));
  EXPECT_THAT(rounds_before_updates(one_each, 2), ElementsAre(2, 2, 2));
  EXPECT_THAT(rounds_before_updates(rounds_of({{5, 1}}), 1), ElementsAre(0));
  EXPECT_THAT(rounds_before_updates({}, 0), ::testing::IsEmpty());
}

}  // namespace
}  // namespace trireme::optim
