// SPDX-License-Identifier: Apache-2.0
// Writes a run's record while steps run: entries wait in a queue, and a separate thread writes them
// in order. The thread also syncs the record and writes run.h5 when that is due.
//
// 1. One thread calls all members. The record belongs to the writer's thread.
// 2. The queue holds at most `most_waiting` entries and `most_bytes`. A write() to a full() queue
//    waits for space. A file system that stalls for a short time does not delay steps.
// 3. After an entry fails, later entries are dropped, and the next write() or finish() throws its
//    exception: a record that lost a row must not continue as if it were complete.
// 4. The destructor writes queued entries, unless one has failed, and closes the record.
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

  /// `entry` owns the data that it writes: `bytes`, in addition to a small object.
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
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable_any changed_;
  std::deque<Waiting> queue_;  // the first one is being written
  std::size_t bytes_ = 0;      // sum over the queue
  std::exception_ptr problem_;
  std::jthread thread_;  // last: starts after, and is joined before, the other members
};

}  // namespace trireme::record
