// SPDX-License-Identifier: Apache-2.0
#include "base/path_problem.hpp"

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace trireme {

bool is_about_the_path(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
    case EILSEQ:
    case ENXIO:   // a socket
    case ENODEV:  // a device without a driver
      return true;
    default:
      return false;
  }
}

void expect_about_the_path(int error, const std::string& call) {
  if (!is_about_the_path(error))
    throw StorageError("file system", call, std::strerror(error), __FILE__, __LINE__);
}

}  // namespace trireme
