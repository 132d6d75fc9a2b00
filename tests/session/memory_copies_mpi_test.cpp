// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/control/mpi_world.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint_cases.hpp"

#include "session/memory_copies.hpp"

#include "support/checkpoint_reader.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::session {
namespace {

using record::facts_of, record::plan_for;

/// A world that loses a rank during a copy: its second exchange fails.
class LosingWorld final : public comm::World {
 public:
  explicit LosingWorld(comm::World& whole) : whole_(whole) {}

  [[nodiscard]] int rank() const override { return whole_.rank(); }
  [[nodiscard]] int size() const override { return whole_.size(); }
  [[nodiscard]] int local_rank() const override { return whole_.local_rank(); }
  [[nodiscard]] int local_size() const override { return whole_.local_size(); }
  [[nodiscard]] const std::string& host() const override { return whole_.host(); }
  void barrier() override { whole_.barrier(); }
  void sum(std::span<std::int64_t> values) override { whole_.sum(values); }
  void max(std::span<std::int64_t> values) override { whole_.max(values); }
  std::vector<double> gather_all(std::span<const double> values) override {
    return whole_.gather_all(values);
  }
  std::vector<std::string> gather_all(const std::string& text) override {
    return whole_.gather_all(text);
  }
  std::string broadcast(std::string bytes, int root) override {
    return whole_.broadcast(std::move(bytes), root);
  }
  void exchange(const std::string& mine, int to, std::string& theirs, int from) override {
    if (std::exchange(exchanged_, true))
      throw comm::LostRank("MPI", "MPI_Test", "a rank is lost", __FILE__, __LINE__);
    whole_.exchange(mine, to, theirs, from);
  }
  [[noreturn]] void abort(ExitCode code) noexcept override { std::_Exit(static_cast<int>(code)); }

 private:
  comm::World& whole_;
  bool exchanged_ = false;
};

class Copies : public ::testing::Test {
 protected:
  Copies() {
    if (world_.rank() == 0)
      scratch_.emplace();
    path_ = world_.broadcast(scratch_ ? scratch_->path() : "", 0);
    for (int rank = 0; rank < world_.size(); ++rank) all_.insert(rank);
  }

  /// Copies the state that each rank of `world` owns to memory.
  void take(std::int64_t step, comm::World& world) {
    const layout::Plan plan = plan_for(world.size());
    record::Owned owned(plan, world.rank());
    owned.fill();
    copies_.take(facts_of(step), owned.wanted(), *stream_, world);
  }
  /// The ranks of `world` except `lost`; null on the lost ranks.
  std::unique_ptr<comm::MpiWorld> without(const std::set<int>& lost, comm::MpiWorld& world) {
    const int out = lost.contains(world.rank()) ? 1 : 0;
    auto part = std::make_unique<comm::MpiWorld>(world, out);
    return out > 0 ? nullptr : std::move(part);
  }
  /// Writes the copies in memory of the ranks of `rest`; returns their step, or -1.
  std::int64_t write(const std::string& directory,
                     comm::World& rest,
                     std::int64_t newer_than = -1) {
    auto found = copies_.newest(newer_than, rest);
    if (!found)
      return -1;
    const record::CheckpointFacts facts = found->facts, expected = facts_of(facts.step);
    EXPECT_EQ(facts.next_sample, expected.next_sample);
    EXPECT_EQ(facts.seed, expected.seed);
    EXPECT_EQ(facts.model, expected.model);
    EXPECT_EQ(facts.more, expected.more);
    const layout::Plan plan = plan_for(rest.size());
    record::CheckpointWriter writer(directory, plan, 0, rest);
    writer.start_files(facts, std::move(found->files));
    EXPECT_EQ(record::load_small(writer.finish().directory, rest).step, facts.step);
    return facts.step;
  }

  comm::MpiWorld world_;
  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> stream_ =
      device_->make_stream(device::StreamMode::inlined, "compute");
  MemoryCopies copies_;
  std::optional<test::ScratchDirectory> scratch_;
  std::string path_;
  std::set<int> all_;
};

TEST_F(Copies, OfAnyLostRankGiveTheFilesOfACheckpoint) {
  if (world_.size() == 1)
    return;
  copies_.choose_partners(world_);
  take(10, world_);
  const auto saved = record::save_small(path_ + "/disk", 10, world_);
  for (const int lost : all_) {
    const std::string directory = path_ + "/without-" + std::to_string(lost);
    if (const auto rest = without({lost}, world_)) {
      EXPECT_EQ(write(directory, *rest), 10);
      EXPECT_EQ(write(directory, *rest, 10), -1) << "a checkpoint on the disk is as new";
      for (const int rank : all_) {
        const std::string file = "/" + record::rank_file(rank);
        EXPECT_EQ(test::bytes_of(directory + "/checkpoints/step-00000010" + file),
                  test::bytes_of(path_ + "/disk/checkpoints/step-00000010" + file))
            << "of rank " << rank << " without rank " << lost;
      }
    }
    world_.barrier();
  }
}

TEST_F(Copies, OfARankThatIsLostWithItsPartnerAreLost) {
  if (world_.size() < 3)
    return;
  copies_.choose_partners(world_);
  take(10, world_);
  const auto partners = partners_of(world_.gather_all(world_.host()), 1);
  if (const auto rest = without({1, partners.to}, world_)) {
    EXPECT_EQ(write(path_, *rest), -1);
    EXPECT_FALSE(std::filesystem::exists(path_ + "/checkpoints"));
  }
  world_.barrier();
}

TEST_F(Copies, OfTheStepBeforeCountWhereTheNewestIsNotComplete) {
  if (world_.size() == 1)
    return;
  copies_.choose_partners(world_);
  take(10, world_);
  take(20, world_);
  LosingWorld losing(world_);
  EXPECT_THROW(take(30, losing), comm::LostRank);
  if (const auto rest = without({0}, world_)) {
    EXPECT_EQ(write(path_, *rest), 20);
  }
  world_.barrier();
}

TEST_F(Copies, OfTheRemainingRanksCountAfterASecondLoss) {
  if (world_.size() < 3)
    return;
  copies_.choose_partners(world_);
  take(10, world_);
  if (const auto rest = without({1}, world_)) {
    EXPECT_EQ(write(path_, *rest), 10);
    copies_.choose_partners(*rest);
    take(20, *rest);
    if (const auto fewer = without({0}, *rest)) {
      EXPECT_EQ(write(path_, *fewer), 20);
    }
  }
  world_.barrier();
}

TEST(Partners, AreOnOtherHostsWhereNoneHasMoreThanHalfOfTheRanks) {
  using Hosts = std::vector<std::string>;
  for (const Hosts& hosts : {Hosts{"a", "b"}, Hosts{"a", "a", "b", "b"}, Hosts{"b", "a", "b", "a"},
                             Hosts{"a", "a", "a", "b", "c", "c"}, Hosts{"a", "b", "c"},
                             Hosts{"a", "a", "a"}, Hosts{"a", "a", "a", "b"}}) {
    const auto ranks = static_cast<int>(hosts.size());
    const auto most = std::max(std::ranges::count(hosts, "a"), std::ranges::count(hosts, "b"));
    std::set<int> taken;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto [to, from] = partners_of(hosts, rank);
      EXPECT_NE(to, rank);
      EXPECT_EQ(partners_of(hosts, to).from, rank);
      EXPECT_EQ(partners_of(hosts, from).to, rank);
      EXPECT_TRUE(taken.insert(to).second) << "two ranks' copies on rank " << to;
      if (2 * most <= ranks) {
        EXPECT_NE(hosts[static_cast<std::size_t>(to)], hosts[static_cast<std::size_t>(rank)]);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::session
