// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_stream.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/handle.hpp"
#include "device/cuda/launch.cuh"
#include "device/recorder.hpp"

namespace trireme::device::cuda {
namespace {

/// Time at which `event` was reached. Requires: `anchor` was reached before it.
double time_of(cudaEvent_t event, const Anchor& anchor) {
  float milliseconds = 0;
  TRIREME_CUDA(cudaEventElapsedTime(&milliseconds, anchor.event, event));
  return anchor.seconds + static_cast<double>(milliseconds) * 1e-3;
}

/// Reports a failed call in a destructor, unless the process is ending and the driver is unloaded.
void report(cudaError_t status, const char* statement) noexcept {
  if (status != cudaSuccess && status != cudaErrorCudartUnloading)
    error_line("warning: {} failed: {}", statement, words_of(status));
}

Event& event_of(device::Event& event) {
  auto* mine = dynamic_cast<Event*>(&event);
  TRIREME_EXPECT(mine != nullptr, "an event of another device on a CUDA stream");
  return *mine;
}

class Graph final : public device::Graph {
 public:
  explicit Graph(cudaGraph_t captured) {
    TRIREME_CUDA(cudaGraphInstantiate(&executable_, captured, 0));
  }
  ~Graph() override { report(cudaGraphExecDestroy(executable_), "cudaGraphExecDestroy"); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(device::Stream& stream) override {
    TRIREME_CUDA(cudaGraphLaunch(executable_, stream_of(stream).activate()));
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

const char* words_of(cudaError_t status) {
  return cudaGetErrorString(status);
}

void check(cudaError_t status, const char* statement, const char* file, int line) {
  if (status == cudaSuccess)
    return;
  std::string words = fmt::format("{}: {}", cudaGetErrorName(status), words_of(status));
  if (status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread)
    words += "; set gpu.graphs: false to run without captures";
  static_cast<void>(cudaGetLastError());  // clear it, or the next launch would report it
  throw DeviceError("CUDA", statement, words, file, line);
}

void check_launch(cudaError_t status, const char* name, RawStream stream) {
  check(status, name);
#ifdef TRIREME_WAIT_FOR_KERNELS
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), name);
  if (capture == cudaStreamCaptureStatusNone)
    check(cudaStreamSynchronize(stream), name);
#else
  static_cast<void>(stream);
#endif
}

Anchor::Anchor() {
  TRIREME_CUDA(cudaEventCreate(&event));
}

Anchor::~Anchor() {
  report(cudaEventDestroy(event), "cudaEventDestroy");
}

Clock::Clock(int gpu) : gpu_(gpu) {
  TRIREME_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  anchor_ = measure(nullptr);
}

Clock::~Clock() {
  report(cudaStreamDestroy(stream_), "cudaStreamDestroy");
}

// The GPU reached the event at some time within the round trip. Takes the time in this interval
// that is nearest to the prediction of the previous anchor, or the middle for the first anchor.
// Tries again if the round trip was long, since the host may have been preempted.
std::shared_ptr<const Anchor> Clock::measure(const Anchor* previous) const {
  constexpr int tries = 4, most_tries = 64;
  constexpr double good_s = 1e-3;
  TRIREME_CUDA(cudaSetDevice(gpu_));  // the thread may only have waited for events
  std::shared_ptr<Anchor> best;
  double asked = 0, known = std::numeric_limits<double>::infinity();
  for (int i = 0; i < tries || (known - asked > good_s && i < most_tries); ++i) {
    auto anchor = std::make_shared<Anchor>();
    const double before = steady_seconds();
    TRIREME_CUDA(cudaEventRecord(anchor->event, stream_));
    TRIREME_CUDA(cudaEventSynchronize(anchor->event));
    const double after = steady_seconds();
    if (after - before < known - asked) {
      asked = before;
      known = after;
      best = anchor;
    }
  }
  best->seconds = previous == nullptr ? (asked + known) / 2
                                      : std::clamp(time_of(best->event, *previous), asked, known);
  return best;
}

std::shared_ptr<const Anchor> Clock::anchor() const {
  const std::lock_guard lock(mutex_);
  return anchor_;
}

void Clock::renew_when_old() {
  constexpr double old_s = 2;
  const auto present = anchor();
  if (steady_seconds() - present->seconds < old_s)
    return;
  auto renewed = measure(present.get());
  const std::lock_guard lock(mutex_);
  anchor_ = std::move(renewed);
}

Event::Event(Clock& clock) : clock_(clock) {
  TRIREME_CUDA(cudaEventCreate(&event_));
}

Event::~Event() {
  report(cudaEventDestroy(event_), "cudaEventDestroy");
}

bool Event::reached() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  TRIREME_CUDA(status);
  return true;
}

void Event::wait() const {
  TRIREME_CUDA(cudaEventSynchronize(event_));
  clock_.renew_when_old();
}

double Event::seconds() const {
  std::shared_ptr<const Anchor> anchor;
  {
    const std::lock_guard lock(mutex_);
    anchor = anchor_;
  }
  TRIREME_EXPECT(anchor != nullptr, "the time of an event that was never {}", "recorded");
  return time_of(event_, *anchor);
}

void Event::record_on(cudaStream_t stream) {
  {
    const std::lock_guard lock(mutex_);
    anchor_ = clock_.anchor();
  }
  TRIREME_CUDA(cudaEventRecord(event_, stream));
}

Stream::Stream(Device& device, int gpu, Clock& clock, StreamMode mode, const std::string& name)
    : device_(device), gpu_(gpu), clock_(clock), mode_(mode), name_(name) {
  int lowest = 0, highest = 0;
  TRIREME_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  TRIREME_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                            mode == StreamMode::concurrent ? highest : lowest));
}

Stream::~Stream() {
  report(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  report(cudaStreamDestroy(stream_), "cudaStreamDestroy");
}

cudaStream_t Stream::activate() const {
  TRIREME_CUDA(cudaSetDevice(gpu_));
  return stream_;
}

std::byte* Stream::workspace(std::size_t bytes) {
  const std::size_t wanted = std::max(bytes, workspace_bytes);
  if (workspace_.bytes() < wanted) {
    if (workspace_.bytes() > 0)
      synchronize();
    workspace_ = {};  // free the old memory first
    workspace_ = device_.allocate(wanted, "workspace of stream " + name_);
  }
  return workspace_.data();
}

void Stream::expect_no_capture(const char* call) const {
  TRIREME_EXPECT(!capturing_, "{} on stream {} while it is captured", call, name_);
}

void Stream::begin_capture() {
  expect_no_capture("begin_capture");
  TRIREME_CUDA(cudaStreamBeginCapture(activate(), cudaStreamCaptureModeThreadLocal));
  capturing_ = true;
}

std::unique_ptr<device::Graph> Stream::end_capture() {
  TRIREME_EXPECT(capturing_, "end_capture() on stream {} without begin_capture()", name_);
  capturing_ = false;
  cudaGraph_t captured = nullptr;
  TRIREME_CUDA(cudaStreamEndCapture(activate(), &captured));
  const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> graph(
      captured, [](cudaGraph_t raw) { report(cudaGraphDestroy(raw), "cudaGraphDestroy"); });
  return std::make_unique<Graph>(graph.get());
}

void Stream::record(device::Event& event) {
  expect_no_capture("record");
  event_of(event).record_on(activate());
}

void Stream::wait(const device::Event& event) {
  expect_no_capture("wait");
  const auto* mine = dynamic_cast<const Event*>(&event);
  TRIREME_EXPECT(mine != nullptr, "an event of another device on a CUDA stream");
  TRIREME_CUDA(cudaStreamWaitEvent(activate(), mine->get(), cudaEventWaitDefault));
}

void Stream::synchronize() {
  expect_no_capture("synchronize");
  TRIREME_CUDA(cudaStreamSynchronize(activate()));
  clock_.renew_when_old();
}

Stream& stream_of(device::Stream& stream) {
  auto* mine = dynamic_cast<Stream*>(&stream);
  TRIREME_EXPECT(mine != nullptr, "a CUDA stream was expected");
  return *mine;
}

RawStream handle_of(device::Stream& stream) {
  return stream_of(stream).activate();
}

std::byte* workspace_of(device::Stream& stream) {
  return workspace_of(stream, workspace_bytes);
}

std::byte* workspace_of(device::Stream& stream, std::size_t bytes) {
  return stream_of(stream).workspace(bytes);
}

}  // namespace trireme::device::cuda
