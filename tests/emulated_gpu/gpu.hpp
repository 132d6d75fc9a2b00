// SPDX-License-Identifier: Apache-2.0
// The queue of queue.hpp: streams of items, the thread that runs them, and who waits for what.
//
// 1. The one mutex of the Gpu guards everything here, except that items run without it.
// 2. Recording an event creates a new Mark, to which the event then refers. A wait keeps the mark
//    that the event had when the wait was requested. So a later recording of the event does not
//    affect earlier waits, as in CUDA.
// 3. A destroyed stream accepts no more work and is deleted when its items are done.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "settings.hpp"

namespace emulated {

/// One recording of an event: a position in a stream.
struct Mark {
  CUstream_st* stream = nullptr;  ///< valid until reached
  std::uint64_t number = 0;       ///< number of the item on that stream
  bool reached = false;
  double seconds = 0;
};

struct Item {
  std::string what;
  std::function<void()> work;         ///< or one of these:
  std::shared_ptr<Mark> reaches{};    ///< records an event
  std::shared_ptr<Mark> waits_for{};  ///< waits for an event
};

/// The items that a captured stream collected, in order.
using Captured = std::vector<Item>;

struct Capture {
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  Captured items{};
  bool invalid = false;
};

}  // namespace emulated

struct CUstream_st {
  int gpu = 0;
  unsigned flags = 0;
  std::deque<emulated::Item> items{};
  std::uint64_t given = 0, done = 0;  ///< items so far
  std::uint64_t asked_for = 0;        ///< the last item that a thread waits for; used in lazy mode
  bool busy = false, destroyed = false;
  std::unique_ptr<emulated::Capture> capture{};
};

struct CUevent_st {
  std::shared_ptr<emulated::Mark> mark{};  ///< null: never recorded
};

namespace emulated {

class Gpu {
 public:
  static Gpu& instance();

  using Lock = std::unique_lock<std::mutex>;
  [[nodiscard]] Lock lock() { return Lock(mutex_); }

  // All of these require the lock.
  CUstream_st* make_stream(int gpu, unsigned flags);
  void destroy(CUstream_st* stream);
  [[nodiscard]] bool knows(const CUstream_st* stream) const;
  void push(CUstream_st* stream, Item item);
  /// Requests all items up to this one and everything that they depend on.
  void ask_for(CUstream_st* stream, std::uint64_t number);
  void ask_for(const Mark& mark);
  void wait(Lock& lock, CUstream_st* stream);
  void wait(Lock& lock, const std::shared_ptr<Mark>& mark);
  /// Waits for everything enqueued on any stream so far.
  void wait_for_all(Lock& lock);
  [[nodiscard]] const std::vector<std::unique_ptr<CUstream_st>>& streams() const {
    return streams_;
  }

  std::uint64_t submissions = 0;
  std::map<std::string, double> charges;  ///< by Item::what

 private:
  Gpu();
  void work();
  [[nodiscard]] CUstream_st* choose();
  [[nodiscard]] bool can_go(const CUstream_st& stream) const;

  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  Chooser chooser_;
  bool stop_ = false;
  double charged_ = 0;  ///< how far the GPU's clock is ahead of the host's, in seconds
  std::thread thread_;
};

/// Sets the calling thread's last error of the CUDA runtime; returns `status`.
cudaError_t told(cudaError_t status);

/// While a thread captures, it must not make calls that may wait for a device or change mappings;
/// in global mode no thread may. Such a call fails and invalidates the capture. Requires the lock.
[[nodiscard]] cudaError_t refuse_during_capture(Gpu& gpu);

}  // namespace emulated
