// SPDX-License-Identifier: Apache-2.0
#include "cli/new_file.hpp"

#include "files/output_file.hpp"

#include "cli/verb.hpp"

namespace trireme::cli {

void expect_new_file(const std::string& path) {
  if (!path.empty() && path != "-")
    files::expect_new_file(path);
}

void give_result(const std::string& text, const std::string& path, const std::string& json) {
  print(path == "-" ? json : text);
  if (!path.empty() && path != "-")
    files::write_new_file(path, json);
}

}  // namespace trireme::cli
