// SPDX-License-Identifier: Apache-2.0
// What the dynamic loader says of a library that could not be opened by its name.
#pragma once

#include <string>

#include <dlfcn.h>

namespace trireme::ops {

/// Of this thread's last call of dlopen or dlsym that failed; asking again gives no reason.
inline std::string words_of_loader() {
  const char* why = dlerror();
  return why == nullptr ? "no reason given" : why;
}

}  // namespace trireme::ops
