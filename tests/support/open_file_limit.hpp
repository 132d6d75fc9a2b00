// SPDX-License-Identifier: Apache-2.0
// A process that may open no further file, as on a machine that is busy: a failure of the machine's
// that needs no help from a library.
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
