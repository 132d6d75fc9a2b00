// SPDX-License-Identifier: Apache-2.0
// Records where time is spent, with little overhead. Spans become samples, which are kept in fixed
// storage until the trainer writes them to the run file.
//
//     { Span span(recorder, SpanName::optim_step);  optimizer.step(); }
//
// A Span reads the host's clock at both ends, for host work and for inline streams. A StreamSpan
// records an event before and after work of a stream; harvest() later turns the reached ones into
// samples, without waiting.
//
// 1. After construction nothing allocates and nothing blocks.
// 2. When the storage is full, samples are dropped and counted; none is overwritten. The summary
//    counts every sample, stored or dropped.
// 3. A disabled recorder reads no clock; spans are still ranges of profilers.
// 4. Times are seconds of the host's steady clock (as Event::seconds and
//    reduce::ReductionTimes). A stored begin is relative to the anchor, a time on both the steady
//    clock and the calendar, so that the samples of all ranks can be compared.
// 5. One host thread uses a recorder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device.hpp"
#include "device/span_names.hpp"

namespace trireme::device {

/// A range of the calling thread for NVTX, with the name of a span, which Nsight Systems and Nsight
/// Compute show: `nsys profile`, and `ncu --nvtx --nvtx-include model.train/`. A GPU's work belongs to
/// the range in which the host enqueued it. Ranges of a thread must be nested. Without CUDA, or where
/// no profiler runs, they are empty. Source: NVTX 3, which looks for a profiler at the first range.
class ProfilerRange {
 public:
  explicit ProfilerRange(SpanName name);
  ~ProfilerRange() { end(); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

  /// Ends the range before its scope does.
  void end();

 private:
  bool open_ = true;
};

/// One measured interval, in the format of the run file.
struct TimeSample {
  std::uint32_t step = 0;
  std::uint16_t micro = 0;
  std::uint16_t name = 0;   ///< a SpanName
  std::uint32_t index = 0;  ///< for example the bucket; SpanInfo::index names it
  std::uint32_t rank = 0;
  double begin_s = 0;  ///< since the recorder's anchor
  double duration_s = 0;

  bool operator==(const TimeSample&) const = default;
};
static_assert(sizeof(TimeSample) == 32);

struct SpanSummary {
  std::uint64_t count = 0;
  double total_s = 0;
  double median_s = 0;  ///< within 1.1 % (bins of 1/32 octave)
  double longest_s = 0;
};

/// The host's steady clock in seconds; also the clock of CPU events.
double steady_seconds();
/// Seconds since 1970, UTC.
double calendar_seconds();

/// The clocks are parameters, so that times can be exact in tests.
struct RecorderOptions {
  bool enabled = true;                          ///< record.spans
  std::uint32_t rank = 0;                       ///< of every sample
  std::size_t capacity = std::size_t{1} << 16;  ///< samples between two takes
  std::size_t stream_spans = 256;               ///< event pairs; used with a device only
  std::function<double()> clock = steady_seconds;
  std::function<double()> calendar = calendar_seconds;
};

class Recorder {
 public:
  /// `device` creates the events of StreamSpan; without it StreamSpans are dropped and counted.
  explicit Recorder(RecorderOptions options, Device* device = nullptr);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Sets the step and micro-step of the following samples.
  void at_step(std::int64_t step) {
    step_ = static_cast<std::uint32_t>(step);
    micro_ = 0;
  }
  void at_micro_step(std::int64_t micro) { micro_ = static_cast<std::uint16_t>(micro); }

  /// Adds a time measured elsewhere. `begin` is in seconds of the host's steady clock.
  void add(SpanName name, std::uint32_t index, double begin, double duration);

  void harvest();

  /// The samples since the last clear(), in the order in which they ended or were harvested.
  [[nodiscard]] std::span<const TimeSample> samples() const { return samples_; }
  void clear() { samples_.clear(); }

  [[nodiscard]] bool enabled() const { return options_.enabled; }
  /// Samples dropped because the storage was full, and StreamSpans because no events were free.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
  [[nodiscard]] SpanSummary summary(SpanName name) const;
  [[nodiscard]] double anchor() const { return anchor_; }
  [[nodiscard]] double anchor_calendar() const { return anchor_calendar_; }
  [[nodiscard]] double now() const { return options_.clock(); }

 private:
  friend class StreamSpan;
  /// Octaves from 2^-30 s (1 ns) to 2^20 s (12 days), 32 bins each.
  static constexpr int first_octave = -30, num_octaves = 50, bins_per_octave = 32;
  /// A histogram of durations by powers of two: medians without keeping samples.
  struct Tally {
    std::uint64_t count = 0;
    double total_s = 0, longest_s = 0;
    std::array<std::uint32_t, static_cast<std::size_t>(num_octaves* bins_per_octave)> bins{};
  };
  /// A StreamSpan whose end is not reached yet.
  struct Pending {
    std::unique_ptr<Event> begin, end;
    TimeSample sample;
    bool ended = false;
  };

  void store(TimeSample sample, double begin, double duration);

  // Constant after construction.
  RecorderOptions options_;
  double anchor_ = 0, anchor_calendar_ = 0;
  // Host thread.
  std::uint32_t step_ = 0;
  std::uint16_t micro_ = 0;
  std::uint64_t dropped_ = 0;
  std::vector<TimeSample> samples_;
  std::vector<Tally> tallies_;
  std::vector<Pending> pool_;
  std::vector<std::size_t> free_, open_;  ///< positions in pool_
};

class Span {
 public:
  Span(Recorder& recorder, SpanName name, std::uint32_t index = 0)
      : range_(name),
        recorder_(recorder),
        name_(name),
        index_(index),
        begin_(recorder.enabled() ? recorder.now() : 0) {}
  ~Span() { end(); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  /// Ends the span before its scope does; returns its seconds (0 when disabled or ended before).
  double end() {
    range_.end();
    if (ended_ || !recorder_.enabled())
      return 0;
    ended_ = true;
    const double duration = recorder_.now() - begin_;
    recorder_.add(name_, index_, begin_, duration);
    return duration;
  }

 private:
  ProfilerRange range_;
  Recorder& recorder_;
  SpanName name_;
  std::uint32_t index_;
  double begin_;
  bool ended_ = false;
};

/// Measures the work enqueued on `stream` during its lifetime. The stream must outlive the harvest.
class StreamSpan {
 public:
  StreamSpan(Recorder& recorder, SpanName name, std::uint32_t index, Stream& stream);
  ~StreamSpan();
  StreamSpan(const StreamSpan&) = delete;
  StreamSpan& operator=(const StreamSpan&) = delete;

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  const ProfilerRange range_;
  Recorder& recorder_;
  Stream& stream_;
  std::size_t slot_ = none;
};

}  // namespace trireme::device
