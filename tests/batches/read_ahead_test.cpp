// SPDX-License-Identifier: Apache-2.0
#include "batches/read_ahead.hpp"

#include <atomic>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child_process.hpp"

namespace trireme::batches {
namespace {

/// Token i is i % 100; reading token `bad` or a later one fails.
class Source : public tokens::TokenStream {
 public:
  explicit Source(std::int64_t bad = 1'000'000)
      : TokenStream({100'001, 100, 1, "counting"}), bad_(bad) {}
  /// Waits for this number of reads and returns the number so far.
  int wait_for_reads(int wanted) const {
    int now = reads;
    for (; now < wanted; now = reads) reads.wait(now);
    return now;
  }
  mutable std::atomic<int> reads{0};

 private:
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override {
    ++reads;
    reads.notify_all();
    if (begin + std::ssize(out) > bad_)
      throw StorageError("test", "read", "bad sector", __FILE__, __LINE__);
    for (auto& token : out) token = static_cast<std::int32_t>(begin++ % 100);
  }

  std::int64_t bad_;
};

Dataset dataset(std::shared_ptr<const Source> source, std::optional<std::uint64_t> seed) {
  return {{Windows(std::move(source), 0, 100'001, 10)}, {MixtureOrder::block}, seed};
}

/// This is the second of two ranks.
const Consumption consumption{.sizes = BatchSizes(12), .rank = 1, .of = {0, 2, 2}};

void expect_block(const Dataset& data,
                  const ReadAhead::Block& block,
                  std::int64_t step_first,
                  std::int64_t micro,
                  bool counted = true) {
  std::vector<std::int32_t> tokens(10), targets(10);
  std::int64_t bytes = 0;
  for (std::size_t row = 0; row < 2; ++row) {
    data.fill(step_first + 6 + micro * 2 + static_cast<std::int64_t>(row), tokens, targets);
    for (std::size_t i = 0; i < 10; ++i) {
      ASSERT_EQ(block.tokens[row * 10 + i], tokens[i]);
      ASSERT_EQ(block.targets[row * 10 + i], targets[i]);
      bytes += targets[i] < 50 ? targets[i] : 0;
    }
  }
  EXPECT_EQ(block.bytes, counted ? bytes : 0);
}

std::vector<std::int32_t> fifty() {
  std::vector<std::int32_t> bytes_of(50);
  for (std::size_t i = 0; i < 50; ++i) bytes_of[i] = static_cast<std::int32_t>(i);
  return bytes_of;
}

TEST(ReadAhead, GivesWhatTheDatasetHolds) {
  const Dataset data = dataset(std::make_shared<Source>(), 42);
  ReadAhead ahead(data, consumption, fifty());
  for (std::int64_t step = 0; step < 200; ++step)
    for (std::int64_t micro = 0; micro < 3; ++micro)
      expect_block(data, ahead.take(step + 1, step * 12, micro), step * 12, micro);
  // Jumps to another place, forward, back, and to the same place again.
  for (const std::int64_t first : {5'000, 12, 0, 0, 1'200'000}) {
    expect_block(data, ahead.take(first / 12 + 1, first, 0), first, 0);
    expect_block(data, ahead.take(first / 12 + 1, first, 1), first, 1);
  }
}

TEST(ReadAhead, FollowsBatchesThatChange) {
  const Dataset data = dataset(std::make_shared<Source>(), std::nullopt);
  // This is the second of two ranks: its block begins after half of the step.
  const Consumption grows{.sizes = BatchSizes(4, {{3, 12}, {5, 8}}), .rank = 1, .of = {0, 2, 2}};
  ReadAhead ahead(data, grows, {});
  std::int64_t first = 0;
  for (std::int64_t step = 1; step <= 40; ++step) {
    const std::int64_t sequences = step < 3 ? 4 : step < 5 ? 12 : 8;
    for (std::int64_t micro = 0; micro < sequences / 4; ++micro) {
      const ReadAhead::Block& block = ahead.take(step, first, micro);
      // Tokens are in order: sample i begins with token 10 i.
      EXPECT_EQ(block.tokens[0], 10 * (first + sequences / 2 + 2 * micro) % 100) << step;
    }
    first += sequences;
  }
}

TEST(ReadAhead, CountsTheTextOfPartialMicroBatchesOnly) {
  const Dataset data = dataset(std::make_shared<Source>(), std::nullopt);
  // 7 samples on 3 ranks: the last rank has 2, so its second micro-step gets none.
  ReadAhead ahead(data, {.sizes = BatchSizes(7), .rank = 2, .of = {0, 2, 3}},
                  std::vector<std::int32_t>(100, 3));
  const ReadAhead::Block& whole = ahead.take(1, 0, 0);
  EXPECT_EQ(whole.samples.first, 5);
  EXPECT_EQ(whole.samples.count, 2);
  EXPECT_EQ(whole.bytes, 2 * 10 * 3);
  const ReadAhead::Block& none = ahead.take(1, 0, 1);
  EXPECT_EQ(none.samples.count, 0);
  EXPECT_EQ(none.rows(), 1);
  EXPECT_EQ(none.bytes, 0);
  EXPECT_EQ(ahead.take(2, 7, 0).samples.first, 12);
}

TEST(ReadAhead, ReadsNothingBeforeItIsAsked) {
  const auto source = std::make_shared<Source>();
  const Dataset data = dataset(source, 42);
  { const ReadAhead ahead(data, consumption, {}); }
  EXPECT_EQ(source->reads, 0);
}

TEST(ReadAhead, FillsAllBlocksAndAgainWhenHalfOfThemAreTaken) {
  const auto source = std::make_shared<Source>();
  const Dataset data = dataset(source, 42);
  ReadAhead ahead(data, consumption, {});
  constexpr int reads = 4;  // reads of a block: tokens and the last target of two rows
  const int all = static_cast<int>(ahead.ahead() + 1) * reads;
  ASSERT_EQ(all, 5 * reads);
  ahead.take(1, 0, 0);
  EXPECT_EQ(source->wait_for_reads(all), all);
  ahead.take(1, 0, 1);
  EXPECT_EQ(source->reads, all);
  ahead.take(1, 0, 2);
  EXPECT_EQ(source->wait_for_reads(all + 2 * reads), all + 2 * reads);
  ahead.take(2, 12, 0);
  expect_block(data, ahead.take(2, 12, 1), 12, 1, false);
}

TEST(ReadAhead, NamesTheLimitWhereItsThreadIsRefused) {
  const Dataset data = dataset(std::make_shared<Source>(), 42);
  ReadAhead ahead(data, consumption, {});
  EXPECT_THAT(test::without_threads([&] { ahead.take(1, 0, 0); }),
              testing::HasSubstr("'read-ahead' failed: Resource temporarily unavailable (ulimit"));
}

TEST(ReadAhead, ThrowsWhatItMetWhereItIsAskedForIt) {
  const Dataset data = dataset(std::make_shared<Source>(600), std::nullopt);
  ReadAhead ahead(data, consumption, {});
  for (std::int64_t step = 0; step < 4; ++step)
    for (std::int64_t micro = 0; micro < 3; ++micro) ahead.take(step + 1, step * 12, micro);
  ahead.take(5, 48, 0);
  ahead.take(5, 48, 1);
  EXPECT_THROW(ahead.take(5, 48, 2), StorageError);
  EXPECT_THROW(ahead.take(6, 60, 0), StorageError);
  expect_block(data, ahead.take(1, 0, 0), 0, 0, false);
}

}  // namespace
}  // namespace trireme::batches
