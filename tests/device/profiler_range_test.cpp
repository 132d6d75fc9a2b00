// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "device/recorder.hpp"

namespace trireme::device {
namespace {

/// NVTX looks for a profiler once per process, so this test runs in its own process.
TEST(ProfilerRange, HasTheNamesOfSpansAndIsNested) {
#ifdef FAKE_NVTX
  EXPECT_EXIT(
      {
        setenv("NVTX_INJECTION64_PATH", FAKE_NVTX, 1);
        Recorder off({.enabled = false});
        const ProfilerRange outer(SpanName::step);
        {
          Span ended(off, SpanName::data_next);
          ended.end();
          const Span span(off, SpanName::model_train);
        }
        void* library = dlopen(FAKE_NVTX, RTLD_LAZY | RTLD_NOLOAD);
        auto* told = reinterpret_cast<const char* (*)()>(dlsym(library, "fake_nvtx_told"));
        std::fprintf(stderr, "%s", told == nullptr ? "not loaded" : told());
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "^step data.next end model.train end $");
#else
  GTEST_SKIP() << "a build without CUDA has no NVTX";
#endif
}

}  // namespace
}  // namespace trireme::device
