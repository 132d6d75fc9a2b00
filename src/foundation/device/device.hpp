// SPDX-License-Identifier: Apache-2.0
// One device behind one interface: streams that order work, events that mark points in it, buffers,
// copies.
//
// Work on one stream happens in order; work on two streams is ordered by events only. Both backends
// keep CUDA's semantics:
//
// 1. `stream.record(event)` marks everything enqueued on the stream so far. An event may be
//    recorded again; a wait refers to the latest record made before the wait was called, and may
//    also wait for the older ones. An event never recorded counts as reached.
// 2. `stream.wait(event)` holds back what is enqueued on `stream` afterwards; the host goes on,
//    except on an inline stream, which has no queue: there the host is the one that waits.
// 3. `event.wait()`, `stream.synchronize()` and the destructor of a stream block the host. Besides
//    them only a full queue does.
// 4. A task that fails on a stream stops that stream: its later tasks are skipped, its events are
//    reached, a stream that waits for one of them fails too, and the exception comes out at the
//    next call on the host that waits. No waiter hangs.
// 5. One host thread owns a stream's enqueueing side; events may be waited for and queried from any
//    thread.
// 6. An event may be destroyed before its record is reached. Memory may not: what a task uses stays
//    until the task is done. A stream is destroyed before its device.
// 7. Between begin_capture() and end_capture() a stream keeps the operations, copies and fills that
//    it is given in a Graph instead of running them. A launch of the graph enqueues all of them at
//    once, as they were given: addresses and numbers are those of the capture, what lies in memory
//    is that of the launch. In between, a stream neither records nor waits, nor does a host wait
//    for it (ContractError), and a GPU allocates nothing on the thread that captures (DeviceError).
//
// A GPU's streams are asynchronous in both modes; `concurrent` ones go first (cuda_stream.hpp).
// On the CPU, `StreamMode::inlined` runs work at once on the calling thread and
// `StreamMode::concurrent` owns a worker thread, so the same engine overlaps communication with
// compute on both backends, and switching overlap off is a choice of mode.
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
  /// Blocks the host until it has. Rethrows the failure of the stream that recorded it.
  virtual void wait() const = 0;
  /// When it was reached, in seconds of the host's steady clock. Requires: recorded, reached().
  [[nodiscard]] virtual double seconds() const = 0;
};

class Device;
class Stream;

/// Work that a stream captured. Its memory is the capturer's to keep.
class Graph {
 public:
  virtual ~Graph() = default;
  /// On any stream of the device that captured it; what was launched before may still be running.
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
  /// Ends the capture, also when it throws. A capture that came to nothing is an empty graph.
  virtual std::unique_ptr<Graph> end_capture() = 0;
};

struct MemoryInfo {
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;
};

class Device : public MemorySource {
 public:
  [[nodiscard]] virtual Kind kind() const = 0;
  /// For people and for the record: "AMD EPYC 9354, 1 thread".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual MemoryInfo memory() const = 0;
  /// By which all processes know a GPU: "GPU-3f2a…"; "" for a CPU.
  [[nodiscard]] virtual std::string uuid() const { return {}; }

  /// `name` shows in debuggers and profilers. At most 15 characters.
  virtual std::unique_ptr<Stream> make_stream(StreamMode mode, const std::string& name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  /// Zeroed memory. Throws DeviceError naming `what` and the byte count when there is not enough.
  virtual Buffer allocate(std::size_t bytes, std::string_view what) = 0;

  /// Zeroed memory of the host that the device reads and writes as well, page-locked where that
  /// makes copies asynchronous. A host whose memory is the device's has just one kind.
  virtual Buffer allocate_shared_with_host(std::size_t bytes, std::string_view what) {
    return allocate(bytes, what);
  }

  /// Records a remark for the run's log, such as the fallback that an operation chose; each text is
  /// recorded once. Any thread.
  void note(std::string text);
  /// The remarks since the last call.
  std::vector<std::string> take_notes();

  /// Same dtype and element count. Between host and device memory on a CUDA device.
  virtual void copy(View to, ConstView from, Stream& stream) = 0;
  virtual void fill_zero(View to, Stream& stream) = 0;

 private:
  std::mutex notes_mutex_;
  std::vector<std::string> notes_;
  std::size_t notes_taken_ = 0;
};

/// For processes that run collectives on GPUs; comes before the first call of CUDA. CUDA then loads
/// all kernels of a library with it, unless the environment says otherwise: a kernel that is loaded
/// at its first launch waits for the kernels that run, and a collective among them may wait for this
/// process. Takes 3 s more at the start (H100, cuDNN and cuBLASLt), so one process alone does without.
/// Source: CUDA programming guide, "Lazy Loading", "Concurrent Execution".
void load_kernels_eagerly();

/// The CPU of this process. `threads` is what ops may use (OpenMP), the caller included.
std::unique_ptr<Device> make_cpu_device(int threads);

/// The GPUs that this process may use, and why there is none.
struct CudaCensus {
  int count = 0;
  std::string why_none;  ///< empty when there is one: "no CUDA-capable device is detected"
};
/// Never throws: a machine without a driver has no GPU.
CudaCensus count_cuda_devices();

/// How one GPU reaches another, both visible to this process; as CUDA reports it, not measured.
/// Source: CUDA's runtime API, section "Peer Device Memory Access" and enum cudaDeviceP2PAttr.
struct GpuLink {
  std::string from, to;         ///< UUIDs
  bool peer_access = false;     ///< the one can map memory of the other
  bool native_atomics = false;  ///< and has atomics on it, as over NVLink
  int performance_rank = 0;     ///< 0 is the fastest kind of link of the machine

  bool operator==(const GpuLink&) const = default;
};
/// Of all ordered pairs; none without a GPU. Throws DeviceError.
std::vector<GpuLink> links_between_gpus();

/// GPU number `index` of those visible. Throws DeviceError when there is none, when it is older
/// than compute capability 8.0, and in a build without CUDA.
std::unique_ptr<Device> make_cuda_device(int index);

}  // namespace trireme::device
