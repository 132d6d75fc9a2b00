// SPDX-License-Identifier: Apache-2.0
// NVRTC, the run-time compiler of CUDA, which cuDNN opens by name when it builds a graph. Nothing
// links with it, so a machine that lacks it is found out only then, by an error that does not say
// so.
#pragma once

#include <string>

#include <dlfcn.h>

namespace trireme::ops {

/// What the dynamic loader says of this thread's last call of dlopen or dlsym that failed; asking
/// again gives no reason.
inline std::string words_of_loader() {
  const char* why = dlerror();
  return why == nullptr ? "no reason given" : why;
}

/// "libnvrtc.so.13", of the toolkit that this was built with.
std::string nvrtc_library();

/// Empty when `library` and the builtins that it opens itself can be opened, else a sentence
/// with the name of the one that cannot, the loader's words, and what to do.
std::string nvrtc_problem(const std::string& library = nvrtc_library());

}  // namespace trireme::ops
