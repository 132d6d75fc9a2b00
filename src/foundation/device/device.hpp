// SPDX-License-Identifier: Apache-2.0
// The interface of a device, CPU or GPU: streams that order work, events that mark points in it,
// buffers and copies.
//
// Work on one stream runs in order; work on two streams is ordered only by events. Both backends
// have CUDA's semantics:
//
// 1. `stream.record(event)` marks everything enqueued on the stream so far. An event may be
//    recorded again, on another stream once it is reached; a wait refers to the latest record
//    before the wait. An event that was never recorded counts as reached.
// 2. `stream.wait(event)` delays work that is enqueued on `stream` afterwards; the host continues,
//    except with an inline stream, which has no queue, so the host waits.
// 3. Only `event.wait()`, `stream.synchronize()`, the destructor of a stream and a full queue block
//    the host.
// 4. A task that fails on a stream stops that stream: its later tasks are skipped, its events are
//    reached, a stream that waits for one of them fails as well, and the next host call that waits
//    throws the exception. No waiting thread hangs.
// 5. One host thread enqueues on a stream; any thread may wait for and query events.
// 6. An event may be destroyed before its record is reached. Memory may not be freed before the
//    tasks that use it have ended. A stream is destroyed before its device.
// 7. Between begin_capture() and end_capture() a stream stores operations, copies and fills in a
//    Graph instead of running them. A launch of the graph enqueues all of them, with the addresses
//    and numbers of the capture and the memory contents of the launch. During a capture the stream
//    must not record or wait, and the host must not wait for it (ContractError); on a GPU the
//    capturing thread must not allocate (DeviceError).
//
// A GPU's streams are asynchronous in both modes; `concurrent` ones have priority
// (cuda_stream.hpp). On the CPU, `StreamMode::inlined` runs work at once on the calling thread and
// `StreamMode::concurrent` has a worker thread. So the same engine overlaps communication with
// compute on both backends, and the mode switches overlap off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/view.hpp"
#include "device/buffer.hpp"

namespace trireme::device {

enum class Kind : std::uint8_t { cpu, cuda };

enum class StreamMode : std::uint8_t { inlined, concurrent };

class Event {
 public:
  virtual ~Event() = default;
  /// Whether the latest record has been reached; never blocks.
  [[nodiscard]] virtual bool reached() const = 0;
  /// Blocks the host until the latest record is reached. Rethrows the failure of its stream.
  virtual void wait() const = 0;
  /// When it was reached, in seconds of the host's steady clock. Requires: recorded, reached().
  [[nodiscard]] virtual double seconds() const = 0;
};

class Device;
class Stream;

/// Work captured from a stream. The caller keeps the memory that it uses alive.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Requires: a stream of the device that captured it. Earlier launches may still be running.
  virtual void launch(Stream& stream) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  [[nodiscard]] virtual Device& device() const = 0;
  [[nodiscard]] virtual StreamMode mode() const = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;
  virtual void synchronize() = 0;
  virtual void begin_capture() = 0;
  /// Ends the capture, also when it throws. The graph may be empty.
  virtual std::unique_ptr<Graph> end_capture() = 0;
};

struct MemoryInfo {
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;
};

class Device : public MemorySource {
 public:
  [[nodiscard]] virtual Kind kind() const = 0;
  /// For the log and the record: "AMD EPYC 9354, 1 thread".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual MemoryInfo memory() const = 0;
  /// Identifies a GPU in all processes: "GPU-3f2a…"; "" for a CPU.
  [[nodiscard]] virtual std::string uuid() const { return {}; }

  /// `name` is shown by debuggers and profilers; at most 15 characters.
  virtual std::unique_ptr<Stream> make_stream(StreamMode mode, const std::string& name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  /// Zeroed memory. If there is not enough, throws DeviceError naming `what` and the byte count.
  virtual Buffer allocate(std::size_t bytes, std::string_view what) = 0;

  /// Zeroed host memory that the device can read and write, page-locked on GPUs so that copies are
  /// asynchronous. The same as allocate() on a CPU.
  virtual Buffer allocate_shared_with_host(std::size_t bytes, std::string_view what) {
    return allocate(bytes, what);
  }

  /// Records a remark for the run's log, such as a fallback, each text once. Any thread.
  void note(std::string text);
  /// The remarks since the last call.
  std::vector<std::string> take_notes();

  /// Copies between host and device memory in any direction. Requires: same dtype and elements.
  virtual void copy(View to, ConstView from, Stream& stream) = 0;
  virtual void fill_zero(View to, Stream& stream) = 0;

 private:
  std::mutex notes_mutex_;
  std::vector<std::string> notes_;
  std::size_t notes_taken_ = 0;
};

/// Makes CUDA load all kernels of a library with it, unless the environment says otherwise. Call
/// before the first call of CUDA, in processes that run collectives on GPUs: a kernel that is
/// loaded at its first launch waits for running kernels, and a collective among them may wait for
/// this process. Takes 3 s more at the start (H100, cuDNN and cuBLASLt), so a single process does
/// not use it. Source: CUDA programming guide, "Lazy Loading", "Concurrent Execution".
void load_kernels_eagerly();

/// `threads`: number of OpenMP threads of an operation, including the caller.
std::unique_ptr<Device> make_cpu_device(int threads);

/// The number of GPUs that this process may use, and why there is none.
struct CudaCensus {
  int count = 0;
  std::string why_none;  ///< "no CUDA-capable device is detected"; empty if there is a GPU
};
/// Never throws: a machine without a driver has no GPU.
CudaCensus count_cuda_devices();

/// The link from one GPU of this process to another, as CUDA reports it, not measured. Source:
/// CUDA's runtime API, "Peer Device Memory Access" and cudaDeviceP2PAttr.
struct GpuLink {
  std::string from, to;         ///< UUIDs
  bool peer_access = false;     ///< `from` can map memory of `to`
  bool native_atomics = false;  ///< and use atomics on it, as over NVLink
  int performance_rank = 0;     ///< 0 is the fastest kind of link of the machine

  bool operator==(const GpuLink&) const = default;
};
/// The links of all ordered pairs; empty without a GPU. Throws DeviceError.
std::vector<GpuLink> links_between_gpus();

/// Visible GPU number `index`. Throws DeviceError if it does not exist or is older than compute
/// capability 8.0, and in a build without CUDA.
std::unique_ptr<Device> make_cuda_device(int index);

}  // namespace trireme::device
