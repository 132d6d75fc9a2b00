// SPDX-License-Identifier: Apache-2.0
// The queue of queue.hpp: streams of items, the thread that does them, and who waits for what.
//
// 1. Everything here is guarded by the one mutex of the Gpu, the items' closures excepted, which
// run without it.
// 2. Recording an event makes a new Mark, which the event then names; a wait keeps the mark that
// the event named when the wait was asked for. So what an event is recorded for later changes
// nothing for those who wait already, as in CUDA.
// 3. A destroyed stream takes no more work, and goes when its items are done.
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

/// One recording of an event: a place in a stream.
struct Mark {
  CUstream_st* stream = nullptr;  ///< valid until reached
  std::uint64_t number = 0;       ///< of the item on that stream
  bool reached = false;
  double seconds = 0;
};

struct Item {
  std::string what;
  std::function<void()> work;         ///< or one of these:
  std::shared_ptr<Mark> reaches{};    ///< an event is recorded
  std::shared_ptr<Mark> waits_for{};  ///< the stream waits for one
};

/// What a captured stream keeps, in order.
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
  std::uint64_t asked_for = 0;        ///< the last item that somebody waits for; matters when lazy
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

  // All of these under the lock.
  CUstream_st* make_stream(int gpu, unsigned flags);
  void destroy(CUstream_st* stream);
  [[nodiscard]] bool knows(const CUstream_st* stream) const;
  void push(CUstream_st* stream, Item item);
  /// Asks for all up to this item, and all that it depends on.
  void ask_for(CUstream_st* stream, std::uint64_t number);
  void ask_for(const Mark& mark);
  void wait(Lock& lock, CUstream_st* stream);
  void wait(Lock& lock, const std::shared_ptr<Mark>& mark);
  /// For all that was given to any stream so far.
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
  double charged_ = 0;  ///< seconds that the GPU's clock is ahead of the host's
  std::thread thread_;
};

/// The CUDA runtime's last error of the calling thread; `status` is passed through.
cudaError_t told(cudaError_t status);

/// Calls that may wait for a device or change what is mapped are forbidden to a thread that
/// captures, and to all while somebody captures in global mode: such a call fails and spoils the
/// capture. Under the lock.
[[nodiscard]] cudaError_t refuse_during_capture(Gpu& gpu);

}  // namespace emulated
