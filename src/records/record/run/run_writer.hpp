// SPDX-License-Identifier: Apache-2.0
// Writes a run file beside the steps: what is to be written waits in a queue, and a thread of its
// own does it, in the order in which it came.
//
// 1. One thread calls all members. The file belongs to the writer's thread from write() until
//    settled() returns, and to the caller until the next write().
// 2. The queue holds at most `most_waiting` entries and `most_bytes`; a caller who finds it full()
//    and writes nevertheless waits for room. A file system that stalls for a while costs no step.
// 3. When an entry fails, those after it are dropped, and the next write() or settled() throws what
//    it threw: a record that lost a row is not continued as if it were whole.
// 4. When a copy of the record fails (RunFile::also), no entry is dropped: the next write(), once
//    its entry waits, and the next flush() or close() throw what it threw.
// 5. The destructor writes what waits, unless an entry has failed, and closes the file.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "record/run/run_file.hpp"

namespace trireme::record {

class RunWriter {
 public:
  using Entry = std::function<void(RunFile&)>;

  static constexpr std::size_t most_waiting = 4096;
  static constexpr std::size_t most_bytes = std::size_t{64} << 20;

  /// Throws DeviceError when no thread can be started.
  explicit RunWriter(RunFile file);
  ~RunWriter();
  RunWriter(const RunWriter&) = delete;
  RunWriter& operator=(const RunWriter&) = delete;

  /// `entry` holds copies of what it writes, `bytes` of them beside a small object.
  void write(Entry entry, std::size_t bytes = 0);
  [[nodiscard]] bool full() const;
  /// The file, once all entries are written.
  RunFile& settled();
  /// settled() and flushed, and so are copies of it.
  void flush();
  /// settled() and closed, and so are copies of it; nothing may be written afterwards.
  void close();

 private:
  struct Waiting {
    Entry entry;
    std::size_t bytes;
  };

  void serve();
  [[nodiscard]] bool is_full() const {
    return queue_.size() >= most_waiting || bytes_ >= most_bytes;
  }
  void throw_problem();

  RunFile file_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Waiting> queue_;  // the first one is being written
  std::size_t bytes_ = 0;      // of all of them
  std::exception_ptr problem_;
  std::exception_ptr also_problem_;  // of a copy: the file itself is well
  bool ending_ = false;
  std::thread thread_;  // last: starts when all else is ready
};

}  // namespace trireme::record
