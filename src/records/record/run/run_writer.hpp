// SPDX-License-Identifier: Apache-2.0
// Writes a run's record while steps run: what is to be written waits in a queue, and a thread of
// its own does it, in the order in which it came. The thread also syncs the record and writes
// run.h5 when that is due.
//
// 1. One thread calls all members. The record belongs to the writer's thread.
// 2. The queue holds at most `most_waiting` entries and `most_bytes`; a caller who finds it full()
//    and writes nevertheless waits for room. A file system that stalls for a while costs no step.
// 3. When an entry fails, those after it are dropped, and the next write() or finish() throws what
//    it threw: a record that lost a row is not continued as if it were whole.
// 4. The destructor writes what waits, unless an entry has failed, and closes the record.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "record/run/run_record.hpp"

namespace trireme::record {

class RunWriter {
 public:
  using Entry = std::function<void(RunRecord&)>;

  static constexpr std::size_t most_waiting = 4096;
  static constexpr std::size_t most_bytes = std::size_t{64} << 20;

  /// Throws DeviceError when no thread can be started.
  explicit RunWriter(RunRecord record);

  /// `entry` holds copies of what it writes, `bytes` of them in addition to a small object.
  void write(Entry entry, std::size_t bytes = 0);
  [[nodiscard]] bool full() const;
  /// Waits until all entries are written.
  void finish();

 private:
  struct Waiting {
    Entry entry;
    std::size_t bytes;
  };

  void serve(const std::stop_token& stop);
  [[nodiscard]] bool is_full() const {
    return queue_.size() >= most_waiting || bytes_ >= most_bytes;
  }
  void throw_problem();

  RunRecord record_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::deque<Waiting> queue_;  // the first one is being written
  std::size_t bytes_ = 0;      // of all of them
  std::exception_ptr problem_;
  std::jthread thread_;  // last: starts when all else is ready, and ends before it goes
};

}  // namespace trireme::record
