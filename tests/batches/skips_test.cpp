// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "batches/counting_stream.hpp"
#include "batches/read_ahead.hpp"

namespace trireme::batches {
namespace {

TEST(Skips, ReadsSamplesAndRanges) {
  EXPECT_EQ(range_of("7"), (Range{7, 7}));
  EXPECT_EQ(range_of("40-60"), (Range{40, 60}));
  EXPECT_EQ(range_of("60-40"), (Range{60, 40}));
  for (const char* word : {"", "-", "a", "4-", "-4", "4-5-6", "4 - 5", "4.5", "4--5", "+4",
                           "9223372036854775807", "99999999999999999999"})
    EXPECT_FALSE(range_of(word)) << word;
}

using Samples = std::set<std::int64_t>;

/// Up to four ranges of samples from `begin` on.
Samples some_samples(std::mt19937& random, std::int64_t begin, std::int64_t end) {
  Samples samples;
  for (std::size_t count = random() % 5; count > 0; --count) {
    const auto first = begin + static_cast<std::int64_t>(random()) % (end - begin);
    for (std::int64_t more = random() % 9; more >= 0; --more) samples.insert(first + more);
  }
  return samples;
}

Skips skips_of(const Samples& samples) {
  std::vector<std::string> words;
  for (const std::int64_t sample : samples) words.push_back(std::to_string(sample));
  return Skips(words);
}

TEST(Skips, CountAndPassLikeALoopOverSamples) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const Samples samples = some_samples(random, 0, 50);
    const Skips skips = skips_of(samples);
    for (std::int64_t first = 0; first < 70; ++first) {
      EXPECT_EQ(skips.count(first), std::distance(samples.begin(), samples.lower_bound(first)));
      std::int64_t at = first;
      for (std::int64_t count = 0; count < 40; ++count) {
        ASSERT_EQ(skips.after(first, count), at) << first << " " << count;
        while (samples.contains(at)) ++at;
        ++at;
      }
    }
  }
}

TEST(Skips, AreTheSameBeforeASample) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 300; ++trial) {
    const Samples one = some_samples(random, 0, 30);
    Samples other = one;
    other.merge(some_samples(random, 10, 40));
    for (std::int64_t end = 0; end < 50; ++end)
      EXPECT_EQ(skips_of(one).same_before(end, skips_of(other)),
                Samples(one.begin(), one.lower_bound(end)) ==
                    Samples(other.begin(), other.lower_bound(end)));
  }
}

/// A mixture of two streams of 40 and 70 windows: 400 samples are several epochs.
Dataset mixture(Skips skips) {
  return {{Windows(std::make_shared<CountingStream>(281, 1), 0, 161, 4),
           Windows(std::make_shared<CountingStream>(281, 2), 0, 281, 4)},
          {1024, 3072},
          7,
          std::move(skips)};
}

/// The inputs of the samples of a step, over all ranks, in the order of the batch.
std::vector<std::vector<std::int32_t>> read_step(const Dataset& data,
                                                 const BatchSizes& sizes,
                                                 int ranks,
                                                 std::int64_t step,
                                                 std::int64_t first) {
  std::vector<std::vector<std::int32_t>> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    const Consumption of_rank{.sizes = sizes, .rank = rank, .of = {0, 2, ranks}};
    ReadAhead ahead(data, of_rank, {});
    for (std::int64_t micro = 0; micro < of_rank.batches(step).micro_steps(rank); ++micro) {
      const auto& block = ahead.take(step, first, micro);
      for (std::int64_t row = 0; row < block.samples.count; ++row)
        rows.emplace_back(block.tokens.begin() + 4 * row, block.tokens.begin() + 4 * (row + 1));
    }
  }
  return rows;
}

// On any number of ranks, with a batch schedule and with ranges added at a resume, a run sees all
// samples of the original order except those that it skips.
TEST(Skips, ARunSeesTheOtherSamplesInTheSameOrder) {
  std::mt19937 random(5);
  const Dataset whole = mixture({});
  const BatchSizes sizes(7, {{3, 12}, {9, 5}});
  for (int trial = 0; trial < 60; ++trial) {
    Samples samples = some_samples(random, 0, 60);
    Dataset data = mixture(skips_of(samples));
    int ranks = 1 + static_cast<int>(random() % 5);
    std::int64_t wanted = 0, next = 0;
    for (std::int64_t step = 1; step <= 30; ++step) {
      if (step == 6) {  // the run resumes
        ranks = 1 + static_cast<int>(random() % 5);
        samples.merge(some_samples(random, next, next + 60));
        const std::string position = data.position();
        data = mixture(skips_of(samples));
        data.continue_from(position, next);
      }
      std::vector<std::vector<std::int32_t>> expected;
      std::vector<std::int32_t> targets(4);
      for (; std::ssize(expected) < sizes.at(step); ++wanted)
        if (!samples.contains(wanted))
          whole.fill(wanted, expected.emplace_back(4), targets);
      ASSERT_EQ(read_step(data, sizes, ranks, step, next), expected) << trial << " " << step;
      next = data.skips().after(next, sizes.at(step));
      ASSERT_EQ(next, wanted);
    }
  }
}

// The read-ahead skips the same samples as the session.
TEST(Skips, AreReadAheadOf) {
  const Dataset data = mixture(Skips({"3", "10-30", "41"})), whole = mixture({});
  ReadAhead ahead(data, {.sizes = BatchSizes(6), .rank = 0, .of = {0, 2, 1}}, {});
  std::int64_t first = 0, wanted = 0;
  for (std::int64_t step = 1; step < 40; ++step) {
    for (std::int64_t micro = 0; micro < 3; ++micro) {
      const auto& block = ahead.take(step, first, micro);
      for (std::int64_t row = 0; row < 2; ++row, ++wanted) {
        while (data.skips().count(wanted + 1) > data.skips().count(wanted)) ++wanted;
        std::vector<std::int32_t> tokens(4), targets(4);
        whole.fill(wanted, tokens, targets);
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), block.tokens.begin() + 4 * row));
      }
    }
    first = data.skips().after(first, 6);
  }
}

}  // namespace
}  // namespace trireme::batches
