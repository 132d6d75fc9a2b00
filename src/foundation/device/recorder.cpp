// SPDX-License-Identifier: Apache-2.0
#include "device/recorder.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else  // a build without CUDA
static void nvtxRangePushA(const char* /*name*/) {}
static void nvtxRangePop() {}
#endif

#include "base/error_line.hpp"

namespace trireme::device {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double calendar_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ProfilerRange::ProfilerRange(SpanName name) {
  nvtxRangePushA(span_names[static_cast<std::size_t>(name)].dotted);
}

void ProfilerRange::end() {
  if (std::exchange(open_, false))
    nvtxRangePop();
}

Recorder::Recorder(RecorderOptions options, Device* device) : options_(std::move(options)) {
  TRIREME_EXPECT(options_.clock && options_.calendar, "a recorder needs both clocks");
  anchor_ = options_.clock();
  anchor_calendar_ = options_.calendar();
  if (!options_.enabled)
    return;
  samples_.reserve(options_.capacity);
  tallies_.resize(num_span_names);
  if (device == nullptr)
    return;
  pool_.resize(options_.stream_spans);
  free_.reserve(pool_.size());
  open_.reserve(pool_.size());
  for (std::size_t i = 0; i < pool_.size(); ++i) {
    pool_[i].begin = device->make_event();
    pool_[i].end = device->make_event();
    free_.push_back(pool_.size() - 1 - i);
  }
}

void Recorder::add(SpanName name, std::uint32_t index, double begin, double duration) {
  if (!options_.enabled)
    return;
  TimeSample sample;
  sample.step = step_;
  sample.micro = micro_;
  sample.name = static_cast<std::uint16_t>(name);
  sample.index = index;
  store(sample, begin, duration);
}

void Recorder::store(TimeSample sample, double begin, double duration) {
  duration = std::max(duration, 0.0);  // the clock of a virtual machine may go back
  Tally& tally = tallies_[sample.name];
  ++tally.count;
  tally.total_s += duration;
  tally.longest_s = std::max(tally.longest_s, duration);
  const double position =
      duration > 0 ? (std::log2(duration) - first_octave) * bins_per_octave : 0.0;
  const double last = num_octaves * bins_per_octave - 1;
  ++tally.bins[static_cast<std::size_t>(std::clamp(position, 0.0, last))];

  if (samples_.size() == options_.capacity) {
    ++dropped_;
    return;
  }
  sample.rank = options_.rank;
  sample.begin_s = begin - anchor_;
  sample.duration_s = duration;
  samples_.push_back(sample);
}

void Recorder::harvest() {
  std::size_t kept = 0;
  for (const std::size_t slot : open_) {
    Pending& pending = pool_[slot];
    if (!pending.ended || !pending.end->reached()) {
      open_[kept++] = slot;
      continue;
    }
    const double begin = pending.begin->seconds();
    store(pending.sample, begin, pending.end->seconds() - begin);
    free_.push_back(slot);
  }
  open_.resize(kept);
}

SpanSummary Recorder::summary(SpanName name) const {
  SpanSummary summary;
  if (!options_.enabled)
    return summary;
  const Tally& tally = tallies_[static_cast<std::size_t>(name)];
  summary.count = tally.count;
  summary.total_s = tally.total_s;
  summary.longest_s = tally.longest_s;
  std::uint64_t seen = 0;
  for (std::size_t bin = 0; bin < tally.bins.size() && tally.count > 0; ++bin) {
    seen += tally.bins[bin];
    if (2 * seen >= tally.count) {
      const double middle = (static_cast<double>(bin) + 0.5) / bins_per_octave + first_octave;
      summary.median_s = std::min(std::exp2(middle), tally.longest_s);
      break;
    }
  }
  return summary;
}

StreamSpan::StreamSpan(Recorder& recorder, SpanName name, std::uint32_t index, Stream& stream)
    : range_(name), recorder_(recorder), stream_(stream) {
  if (!recorder.enabled())
    return;
  if (recorder.free_.empty())
    recorder.harvest();
  if (recorder.free_.empty()) {
    ++recorder.dropped_;
    return;
  }
  slot_ = recorder.free_.back();
  Recorder::Pending& pending = recorder.pool_[slot_];
  pending.sample = TimeSample{};
  pending.sample.step = recorder.step_;
  pending.sample.micro = recorder.micro_;
  pending.sample.name = static_cast<std::uint16_t>(name);
  pending.sample.index = index;
  pending.ended = false;
  stream.record(*pending.begin);
  recorder.free_.pop_back();
  recorder.open_.push_back(slot_);
}

StreamSpan::~StreamSpan() {
  if (slot_ == none)
    return;
  try {
    stream_.record(*recorder_.pool_[slot_].end);
    recorder_.pool_[slot_].ended = true;
  } catch (const std::exception& problem) {
    error_line("warning: a span could not be ended: {}", problem.what());
  }
}

}  // namespace trireme::device
