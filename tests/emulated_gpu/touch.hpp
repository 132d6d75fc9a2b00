// SPDX-License-Identifier: Apache-2.0
// For code of the emulated libraries that would be too slow with sanitizers and is compiled without
// them: it checks each memory range before accessing it.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>

// Set by CMake if the build uses the address sanitizer, though this file is compiled without it.
#ifdef EMULATED_UNDER_ADDRESS_SANITIZER
extern "C" void* __asan_region_is_poisoned(void* begin, std::size_t bytes);  // NOLINT
extern "C" void __asan_describe_address(void* address);                      // NOLINT
#endif

namespace emulated {

/// Aborts unless all `bytes` from `at` on are accessible. Without the address sanitizer only a null
/// pointer is detected.
inline void touch(const void* at, std::size_t bytes, const char* what) {
  if (bytes == 0)
    return;
  const void* bad = nullptr;
#ifdef EMULATED_UNDER_ADDRESS_SANITIZER
  if (at != nullptr)
    bad = __asan_region_is_poisoned(const_cast<void*>(at), bytes);
#endif
  if (at != nullptr && bad == nullptr)
    return;
  std::fprintf(stderr, "emulated GPU: %s, %zu bytes from %p on: %p may not be touched\n", what,
               bytes, at, bad);
#ifdef EMULATED_UNDER_ADDRESS_SANITIZER
  __asan_describe_address(const_cast<void*>(bad));
#endif
  std::abort();
}

}  // namespace emulated
