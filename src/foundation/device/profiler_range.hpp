// SPDX-License-Identifier: Apache-2.0
// Ranges of NVTX, which Nsight Systems and Nsight Compute show: `nsys profile`, and
// `ncu --nvtx --nvtx-include model.train/`. Without CUDA, or where no profiler runs, they are
// empty. Source: NVTX 3, which looks for a profiler at the first range only.
#pragma once

#include "device/span_names.hpp"

namespace trireme::device {

/// A range of the calling thread, with the name of a span. A GPU's work belongs to the range in
/// which the host enqueued it. Ranges of a thread must be nested.
class ProfilerRange {
 public:
  explicit ProfilerRange(SpanName name);
  ~ProfilerRange() { end(); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

  /// Ends the range before its scope does.
  void end();

 private:
  bool open_ = true;
};

}  // namespace trireme::device
