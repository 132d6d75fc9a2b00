// SPDX-License-Identifier: Apache-2.0
// What this executable was built from and with. The values are generated at build time
// (cmake/build_info.cmake), so the revision is that of the sources compiled, not of the last
// configuration.
#pragma once

#include <string>

namespace trireme {

struct BuildInfo {
  const char* version;       ///< "0.1.0"
  const char* git_revision;  ///< "18b22d1…", with "-dirty" after uncommitted changes; or "unknown"
  const char* compiler;      ///< "GNU 12.2.0"
  const char* build_type;    ///< "RelWithDebInfo"
  const char* mpi;           ///< standard and library that were compiled against
  const char* hdf5;
  const char* cuda;  ///< "not in this build" without CUDA
  const char* cudnn;
  const char* nccl;
  bool has_cuda;
};

const BuildInfo& build_info();

/// The lines of `trireme --version`, with the oneDNN that was found at run time.
std::string build_info_text(const char* onednn);

}  // namespace trireme
