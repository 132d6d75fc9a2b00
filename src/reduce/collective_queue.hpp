// SPDX-License-Identifier: Apache-2.0
// The communication stream, and the order in which collectives begin on it.
//
// There is one stream, so collectives run in the order in which they are pushed, and that order is
// the same on all ranks. Where nothing overlaps the stream is inlined: a push returns when the
// collective is over.
//
// 1. While collectives are held, for proofs, a push only remembers. The collective begins when
// compute is about to wait for it or for one that was pushed later, so a wait that was forgotten
// reads old values every time and not only on a slow network. The order stays the same.
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
  /// Who enqueues the collective of a bucket on stream().
  class Source {
   public:
    virtual ~Source() = default;
    virtual void start(BucketIndex bucket) = 0;
  };

  /// `most`: collectives that may be held at a time.
  CollectiveQueue(device::Device& device, bool overlaps, std::size_t most);

  [[nodiscard]] device::Stream& stream() { return *stream_; }
  void push(Source& source, BucketIndex bucket);
  /// Compute waits for this collective next. Cheap when it has begun.
  void about_to_wait(const Source& source, BucketIndex bucket);
  void hold(bool held) { holds_ = held; }
  /// Ends the stream and what works for it: before the memory goes that collectives touch.
  void close() { stream_.reset(); }

 private:
  struct Held {
    Source* source = nullptr;
    BucketIndex bucket{};
  };

  std::unique_ptr<device::Stream> stream_;
  bool holds_ = false;
  std::vector<Held> held_;  // in order
};

}  // namespace trireme::reduce
