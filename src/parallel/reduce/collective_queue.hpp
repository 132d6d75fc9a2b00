// SPDX-License-Identifier: Apache-2.0
// The communication stream, and the order in which collectives begin on it.
//
// There is one stream, so collectives run in the order in which they are pushed, and that order is
// the same on all ranks. Without overlap the stream is inlined: push() returns when the collective
// has completed.
//
// 1. While collectives are held (`trireme verify` and tests), push() only adds the collective to a
//    list. It begins when compute is about to wait for it or for a later one. So code with a
//    missing wait reads old values in every run, not only on a slow network. Only a source that
//    overtakes begins without the collectives of other sources before it, on all ranks.
// 2. No call allocates.
// 3. All members are called from the host thread that enqueues on the compute stream.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/index.hpp"
#include "device/device.hpp"

namespace trireme::reduce {

class CollectiveQueue {
 public:
  /// Enqueues the collective of a bucket on stream().
  class Source {
   public:
    virtual ~Source() = default;
    virtual void start(BucketIndex bucket) = 0;
    /// Whether held collectives of this source begin without those of other sources before them.
    [[nodiscard]] virtual bool overtakes() const { return false; }
  };

  /// `most`: the maximum number of held collectives.
  CollectiveQueue(device::Device& device, bool overlaps, std::size_t most);

  [[nodiscard]] device::Stream& stream() { return *stream_; }
  void push(Source& source, BucketIndex bucket);
  /// Call before compute waits for this collective. If it is held, begins it and all before it.
  void about_to_wait(const Source& source, BucketIndex bucket);
  void hold(bool held) { holds_ = held; }
  /// Removes the held collectives of this source.
  void forget(const Source& source);
  /// Destroys the stream and its thread. Call before freeing memory that collectives access.
  void close() { stream_.reset(); }

 private:
  struct Entry {
    Source* source = nullptr;
    BucketIndex bucket{};
  };

  std::unique_ptr<device::Stream> stream_;
  bool holds_ = false;
  std::vector<Entry> held_;  // in the order of push()
};

}  // namespace trireme::reduce
