// SPDX-License-Identifier: Apache-2.0
// NVRTC, the run-time compiler of CUDA, which cuDNN opens by name when it builds a graph. It is not
// linked, and if it is missing, cuDNN's error does not name it.
#pragma once

#include <string>

#include <dlfcn.h>

namespace trireme::ops {

/// The dynamic loader's message for this thread's last failed dlopen or dlsym. A second call
/// returns no message.
inline std::string words_of_loader() {
  const char* why = dlerror();
  return why == nullptr ? "no reason given" : why;
}

/// "libnvrtc.so.13", of the toolkit of this build.
std::string nvrtc_library();

/// Empty if `library` and the builtins that it loads can be opened. Otherwise a sentence with the
/// name of the missing library, the loader's message, and what to do.
std::string nvrtc_problem(const std::string& library = nvrtc_library());

}  // namespace trireme::ops
