// SPDX-License-Identifier: Apache-2.0
#include "device/profiler_range.hpp"

#include <utility>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else  // a build without CUDA
static void nvtxRangePushA(const char* /*name*/) {}
static void nvtxRangePop() {}
#endif

namespace trireme::device {

ProfilerRange::ProfilerRange(SpanName name) {
  nvtxRangePushA(span_names[static_cast<std::size_t>(name)].dotted);
}

void ProfilerRange::end() {
  if (std::exchange(open_, false))
    nvtxRangePop();
}

}  // namespace trireme::device
