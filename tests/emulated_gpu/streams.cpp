// SPDX-License-Identifier: Apache-2.0
// CUDA's functions for streams, events and captures.
//
// Recording an event in a capture and waiting for one in a captured stream are refused with
// cudaErrorNotSupported. CUDA would create a fork or a join of the graph.
#include <algorithm>
#include <memory>
#include <utility>

#include "device.hpp"
#include "gpu.hpp"

using emulated::Gpu;
using emulated::told;

struct CUgraph_st {
  emulated::Captured items;
};
struct CUgraphExec_st {
  emulated::Captured items;
};

namespace emulated {

cudaError_t refuse_during_capture(Gpu& gpu) {
  cudaError_t status = cudaSuccess;
  for (const auto& stream : gpu.streams()) {
    if (!stream->capture)
      continue;
    Capture& capture = *stream->capture;
    const bool mine = capture.thread == std::this_thread::get_id() &&
                      capture.mode != cudaStreamCaptureModeRelaxed;
    if (mine || capture.mode == cudaStreamCaptureModeGlobal) {
      capture.invalid = true;
      status = cudaErrorStreamCaptureUnsupported;
    }
  }
  return told(status);
}

}  // namespace emulated

// Streams.

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (priority < emulated::highest_priority || priority > emulated::lowest_priority)
    return told(cudaErrorInvalidValue);
  const auto held = Gpu::instance().lock();
  *stream = Gpu::instance().make_stream(emulated::current_gpu(), flags);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, emulated::lowest_priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const auto held = Gpu::instance().lock();
  if (!Gpu::instance().knows(stream))
    return told(cudaErrorInvalidResourceHandle);
  Gpu::instance().destroy(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Gpu& gpu = Gpu::instance();
  auto held = gpu.lock();
  if (!gpu.knows(stream))
    return told(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return told(cudaErrorStreamCaptureUnsupported);
  }
  if (const auto refused = emulated::refuse_during_capture(gpu); refused != cudaSuccess)
    return refused;
  gpu.wait(held, stream);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  Gpu& gpu = Gpu::instance();
  auto held = gpu.lock();
  if (const auto refused = emulated::refuse_during_capture(gpu); refused != cudaSuccess)
    return refused;
  gpu.wait_for_all(held);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  Gpu& gpu = Gpu::instance();
  const auto held = gpu.lock();
  if (!gpu.knows(stream))
    return told(cudaErrorInvalidResourceHandle);
  if (stream->capture)
    return told(cudaErrorNotSupported);
  if (event->mark)
    gpu.push(stream, {.what = "wait", .work = {}, .waits_for = event->mark});
  return cudaSuccess;
}

// Events.

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto held = Gpu::instance().lock();
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Gpu& gpu = Gpu::instance();
  const auto held = gpu.lock();
  if (!gpu.knows(stream))
    return told(cudaErrorInvalidResourceHandle);
  if (stream->capture)
    return told(cudaErrorNotSupported);
  event->mark = std::make_shared<emulated::Mark>();
  gpu.push(stream, {.what = "record", .work = {}, .reaches = event->mark});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Gpu& gpu = Gpu::instance();
  const auto held = gpu.lock();
  if (const auto refused = emulated::refuse_during_capture(gpu); refused != cudaSuccess)
    return refused;
  if (!event->mark || event->mark->reached)
    return cudaSuccess;
  gpu.ask_for(*event->mark);
  return told(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Gpu& gpu = Gpu::instance();
  auto held = gpu.lock();
  if (const auto refused = emulated::refuse_during_capture(gpu); refused != cudaSuccess)
    return refused;
  if (const auto mark = event->mark)
    gpu.wait(held, mark);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto held = Gpu::instance().lock();
  if (!start->mark || !end->mark)
    return told(cudaErrorInvalidResourceHandle);
  if (!start->mark->reached || !end->mark->reached)
    return told(cudaErrorNotReady);
  *milliseconds = static_cast<float>((end->mark->seconds - start->mark->seconds) * 1e3);
  return cudaSuccess;
}

// Captures.

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Gpu& gpu = Gpu::instance();
  const auto held = gpu.lock();
  if (!gpu.knows(stream))
    return told(cudaErrorInvalidResourceHandle);
  if (stream->capture)
    return told(cudaErrorIllegalState);
  stream->capture = std::make_unique<emulated::Capture>();
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->mode = mode;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto held = Gpu::instance().lock();
  if (!Gpu::instance().knows(stream))
    return told(cudaErrorInvalidResourceHandle);
  *status = !stream->capture           ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto held = Gpu::instance().lock();
  if (!Gpu::instance().knows(stream) || !stream->capture)
    return told(cudaErrorIllegalState);
  if (stream->capture->thread != std::this_thread::get_id() &&
      stream->capture->mode != cudaStreamCaptureModeRelaxed)
    return told(cudaErrorStreamCaptureWrongThread);
  const auto capture = std::exchange(stream->capture, nullptr);
  if (capture->invalid)
    return told(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::move(capture->items)};
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable,
                                 cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *executable = new CUgraphExec_st{graph->items};
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;  // launched graphs have copies
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  Gpu& gpu = Gpu::instance();
  const auto held = gpu.lock();
  if (!gpu.knows(stream))
    return told(cudaErrorInvalidResourceHandle);
  if (stream->capture)
    return told(cudaErrorNotSupported);
  ++gpu.submissions;
  for (const auto& item : executable->items) gpu.push(stream, item);
  return cudaSuccess;
}
