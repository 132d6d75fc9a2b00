// SPDX-License-Identifier: Apache-2.0
#include "files/new_directory.hpp"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "base/error.hpp"
#include "files/output_file.hpp"
#include "files/path.hpp"

namespace trireme::files {

namespace fs = std::filesystem;

namespace {

/// The path without `.`, `..` and a trailing slash.
fs::path normal(const fs::path& path) {
  const fs::path simple = path.lexically_normal();
  return simple.has_filename() ? simple : simple.parent_path();
}

}  // namespace

void expect_new_directory(const std::string& path) {
  if (exists(path) && !(fs::is_directory(path) && fs::is_empty(path)))
    throw UserError({path}, "this is there already; name a new directory, or remove this one");
  std::error_code ignored;
  fs::path first = normal(path);  // the first directory that must be created
  while (first.has_parent_path() && !fs::exists(first.parent_path(), ignored))
    first = first.parent_path();
  expect_place_for(first.string());
}

NewDirectory::NewDirectory(const std::string& path) : path_(path) {
  expect_new_directory(path);
  const fs::path target = normal(fs::absolute(path));
  target_ = target.string();
  make_directories(target.parent_path().string());
  const std::string stem = target_ + ".part-" + std::to_string(::getpid());
  std::string aside = stem;
  for (int number = 2; !fs::create_directory(aside); ++number)  // an existing one is not ours
    aside = stem + "-" + std::to_string(number);
  aside_ = aside;
}

NewDirectory::~NewDirectory() {
  std::error_code ignored;
  if (!committed_)
    fs::remove_all(aside_, ignored);
}

void NewDirectory::write(const std::string& name, std::string_view bytes) const {
  write_new_file(file(name), bytes);
}

void NewDirectory::commit() {
  sync_directory(aside_);
  if (std::rename(aside_.c_str(), target_.c_str()) != 0) {
    const int problem = errno;
    if (problem == ENOTEMPTY || problem == EEXIST || problem == ENOTDIR)
      expect_new_directory(path_);
    fail("rename " + aside_, problem);
  }
  committed_ = true;
  sync_directory(fs::path(target_).parent_path().string());
}

}  // namespace trireme::files
