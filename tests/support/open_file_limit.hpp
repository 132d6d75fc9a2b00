// SPDX-License-Identifier: Apache-2.0
// A process that may not open any more files, as on a busy machine. This injects a system failure
// without a preloaded library.
#pragma once

#include <sys/resource.h>

namespace trireme::test {

class NoFurtherFile {
 public:
  NoFurtherFile() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoFurtherFile() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoFurtherFile(const NoFurtherFile&) = delete;
  NoFurtherFile& operator=(const NoFurtherFile&) = delete;

 private:
  rlimit before_{};
};

}  // namespace trireme::test
