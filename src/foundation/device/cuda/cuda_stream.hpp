// SPDX-License-Identifier: Apache-2.0
// Streams and events of a GPU: thin wrappers of CUDA's.
//
// 1. Every stream is asynchronous; the mode chooses its priority. `concurrent` streams run short
//    work that others wait for (communication, copies) and have priority over `inlined` streams,
//    which compute. None synchronizes with CUDA's default stream.
// 2. The GPU measures the time of an event, which is reported on the host's steady clock: a Clock
//    measures both at an anchor, and elapsed time is counted from the anchor that was current when
//    the event was recorded. The error is at most the round trip of an event on an idle stream
//    (some microseconds). Elapsed times are fp32 milliseconds, so the anchor is renewed every two
//    seconds, after a host wait for a stream or an event. A new anchor is as close to the previous
//    one as its round trip allows, so times keep their order unless the clocks have drifted apart
//    by more.
// 3. A capture (cudaStreamCaptureModeThreadLocal) restricts only the thread that captures; other
//    threads may wait, query and allocate.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <cuda_runtime_api.h>

#include "device/buffer.hpp"
#include "device/device.hpp"

namespace trireme::device::cuda {

/// One GPU event and the time on the host's clock at which it was reached.
struct Anchor {
  Anchor();
  ~Anchor();
  Anchor(const Anchor&) = delete;
  Anchor& operator=(const Anchor&) = delete;

  cudaEvent_t event = nullptr;
  double seconds = 0;
};

/// The current anchor of a device. Any thread.
class Clock {
 public:
  explicit Clock(int gpu);
  ~Clock();
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  [[nodiscard]] std::shared_ptr<const Anchor> anchor() const;
  void renew_when_old();

 private:
  /// `previous`: the current anchor; null for the first.
  [[nodiscard]] std::shared_ptr<const Anchor> measure(const Anchor* previous) const;

  const int gpu_;
  cudaStream_t stream_ = nullptr;  // used for anchors only
  mutable std::mutex mutex_;
  std::shared_ptr<const Anchor> anchor_;  // guarded
};

class Event final : public device::Event {
 public:
  explicit Event(Clock& clock);
  ~Event() override;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  [[nodiscard]] bool reached() const override;
  void wait() const override;
  [[nodiscard]] double seconds() const override;

  void record_on(cudaStream_t stream);
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  Clock& clock_;
  cudaEvent_t event_ = nullptr;
  mutable std::mutex mutex_;
  std::shared_ptr<const Anchor> anchor_;  // guarded; null before the first record
};

class Stream final : public device::Stream {
 public:
  Stream(Device& device, int gpu, Clock& clock, StreamMode mode, const std::string& name);
  /// Waits for the queued work.
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] Device& device() const override { return device_; }
  [[nodiscard]] StreamMode mode() const override { return mode_; }
  void record(device::Event& event) override;
  void wait(const device::Event& event) override;
  void synchronize() override;
  void begin_capture() override;
  std::unique_ptr<device::Graph> end_capture() override;

  /// Makes this stream's GPU current for the calling thread.
  [[nodiscard]] cudaStream_t activate() const;
  std::byte* workspace(std::size_t bytes);

 private:
  void expect_no_capture(const char* call) const;

  Device& device_;
  const int gpu_;
  Clock& clock_;
  const StreamMode mode_;
  const std::string name_;
  cudaStream_t stream_ = nullptr;
  bool capturing_ = false;
  Buffer workspace_;
};

/// `stream` as a CUDA stream. Throws ContractError when it belongs to another device.
Stream& stream_of(device::Stream& stream);

}  // namespace trireme::device::cuda
