// SPDX-License-Identifier: Apache-2.0
#include "device/recorder.hpp"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::device {
namespace {

/// A clock that the test sets; steps are powers of two, so differences are exact.
struct FakeClock {
  double now = 1000.0;
  RecorderOptions options(std::size_t capacity = 16) {
    RecorderOptions options;
    options.capacity = capacity;
    options.rank = 3;
    options.clock = [this] { return now; };
    options.calendar = [] { return 1.7e9; };
    return options;
  }
};

TEST(Names, AreDistinctAndDescribed) {
  std::set<std::string> seen;
  for (const SpanInfo& row : span_names) {
    EXPECT_TRUE(seen.insert(row.dotted).second) << row.dotted;
    EXPECT_GT(std::string(row.help).size(), 10U) << row.dotted;
  }
  const SpanInfo& info = span_names[static_cast<std::size_t>(SpanName::reduce_bucket)];
  EXPECT_STREQ(info.dotted, "reduce.bucket");
  EXPECT_STREQ(info.index, "bucket");
}

TEST(Recorder, ASpanIsNeverNegativeWhenTheClockGoesBack) {
  FakeClock clock;
  Recorder recorder(clock.options());
  recorder.add(SpanName::step, 0, 1002.0, -0.75);
  {
    const Span span(recorder, SpanName::step);
    clock.now -= 1;
  }
  for (const TimeSample& sample : recorder.samples()) EXPECT_EQ(sample.duration_s, 0);
  EXPECT_EQ(recorder.summary(SpanName::step).count, 2U);
  EXPECT_EQ(recorder.summary(SpanName::step).total_s, 0);
}

TEST(Recorder, GivesExactSamplesUnderAFakeClock) {
  FakeClock clock;
  Recorder recorder(clock.options());
  recorder.at_step(7);
  recorder.at_micro_step(2);
  clock.now += 0.5;
  {
    Span outer(recorder, SpanName::step);
    clock.now += 0.25;
    Span inner(recorder, SpanName::optim_step, 5);
    clock.now += 0.125;
    EXPECT_EQ(inner.end(), 0.125);
    EXPECT_EQ(inner.end(), 0.0);
    clock.now += 1;
  }
  recorder.at_step(8);
  recorder.add(SpanName::reduce_bucket, 4, 1002.0, 0.75);

  const auto id = [](SpanName name) { return static_cast<std::uint16_t>(name); };
  EXPECT_THAT(recorder.samples(),
              testing::ElementsAre(TimeSample{7, 2, id(SpanName::optim_step), 5, 3, 0.75, 0.125},
                                   TimeSample{7, 2, id(SpanName::step), 0, 3, 0.5, 1.375},
                                   TimeSample{8, 0, id(SpanName::reduce_bucket), 4, 3, 2.0, 0.75}));
  EXPECT_EQ(recorder.anchor(), 1000.0);
  EXPECT_EQ(recorder.anchor_calendar(), 1.7e9);
}

TEST(Recorder, DropsAndCountsWhenFullAndNeverOverwrites) {
  FakeClock clock;
  Recorder recorder(clock.options(2));
  const TimeSample* storage = recorder.samples().data();
  for (std::uint32_t i = 0; i < 5; ++i) recorder.add(SpanName::step, i, 1000.0 + i, 1.0);
  ASSERT_EQ(recorder.samples().size(), 2U);
  EXPECT_EQ(recorder.samples()[0].index, 0U);
  EXPECT_EQ(recorder.samples()[1].index, 1U);
  EXPECT_EQ(recorder.dropped(), 3U);
  EXPECT_EQ(recorder.summary(SpanName::step).count, 5U) << "the summary sees dropped samples too";
  recorder.clear();
  recorder.add(SpanName::step, 9, 1010.0, 1.0);
  ASSERT_EQ(recorder.samples().size(), 1U);
  EXPECT_EQ(recorder.samples()[0].index, 9U);
  EXPECT_EQ(recorder.samples().data(), storage) << "no allocation after construction";
}

TEST(Recorder, SummarizesPerName) {
  FakeClock clock;
  Recorder recorder(clock.options(4));
  double total = 0;
  for (int i = 1; i <= 101; ++i) {
    const double duration = 1e-3 * i * i;
    recorder.add(SpanName::model_train, 0, clock.now, duration);
    total += duration;
  }
  recorder.add(SpanName::step, 0, clock.now, 0.0);
  const SpanSummary summary = recorder.summary(SpanName::model_train);
  EXPECT_EQ(summary.count, 101U);
  EXPECT_DOUBLE_EQ(summary.total_s, total);
  EXPECT_DOUBLE_EQ(summary.longest_s, 1e-3 * 101 * 101);
  EXPECT_NEAR(summary.median_s, 1e-3 * 51 * 51, 0.011 * 1e-3 * 51 * 51);
  EXPECT_EQ(recorder.summary(SpanName::step).count, 1U);
  EXPECT_EQ(recorder.summary(SpanName::step).median_s, 0.0);
  EXPECT_EQ(recorder.summary(SpanName::evaluate).count, 0U);
}

TEST(Recorder, BoundsTheMedianErrorOverTenDecades) {
  for (double duration = 3e-9; duration < 1e2; duration *= 1.7) {
    FakeClock clock;
    Recorder recorder(clock.options(4));
    for (int i = 0; i < 3; ++i) recorder.add(SpanName::step, 0, 0, duration);
    recorder.add(SpanName::step, 0, 0, duration * 10);
    EXPECT_NEAR(recorder.summary(SpanName::step).median_s / duration, 1.0, 0.011) << duration;
  }
}

TEST(Recorder, ReadsNoClockWhenDisabled) {
  int reads = 0;
  RecorderOptions options;
  options.enabled = false;
  options.clock = [&reads] {
    ++reads;
    return 0.0;
  };
  Recorder recorder(options);
  const int at_construction = reads;
  { Span span(recorder, SpanName::step); }
  recorder.add(SpanName::step, 0, 1, 1);
  EXPECT_EQ(reads, at_construction);
  EXPECT_TRUE(recorder.samples().empty());
  EXPECT_EQ(recorder.summary(SpanName::step).count, 0U);
  EXPECT_EQ(recorder.dropped(), 0U);
}

TEST(StreamSpan, IsHarvestedAfterTheStreamHasPassed) {
  const auto cpu = device::make_cpu_device(1);
  const auto stream = cpu->make_stream(device::StreamMode::inlined, "compute");
  RecorderOptions options;
  options.stream_spans = 2;
  Recorder recorder(options, cpu.get());
  recorder.at_step(4);
  { StreamSpan span(recorder, SpanName::optim_step, 11, *stream); }
  EXPECT_TRUE(recorder.samples().empty()) << "only harvest() makes samples";
  recorder.at_step(5);
  recorder.harvest();
  ASSERT_EQ(recorder.samples().size(), 1U);
  const TimeSample sample = recorder.samples()[0];
  EXPECT_EQ(sample.step, 4U) << "the step in which the span began";
  EXPECT_EQ(sample.index, 11U);
  EXPECT_GE(sample.begin_s, 0.0);
  EXPECT_GE(sample.duration_s, 0.0);
}

TEST(StreamSpan, IsDroppedAndCountedWhenThePoolIsEmpty) {
  const auto cpu = device::make_cpu_device(1);
  const auto stream = cpu->make_stream(device::StreamMode::inlined, "compute");
  RecorderOptions options;
  options.stream_spans = 1;
  Recorder recorder(options, cpu.get());
  {
    StreamSpan first(recorder, SpanName::step, 0, *stream);
    StreamSpan second(recorder, SpanName::step, 1, *stream);
  }
  EXPECT_EQ(recorder.dropped(), 1U);
  { StreamSpan third(recorder, SpanName::step, 2, *stream); }  // the first slot can be reused
  recorder.harvest();
  ASSERT_EQ(recorder.samples().size(), 2U);
  EXPECT_EQ(recorder.samples()[1].index, 2U);

  Recorder without_device(options);
  { StreamSpan span(without_device, SpanName::step, 0, *stream); }
  EXPECT_EQ(without_device.dropped(), 1U);
}

}  // namespace
}  // namespace trireme::device
