// SPDX-License-Identifier: Apache-2.0
#include "files/output_file.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/path.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view staged_end = ".part";

std::string directory_of(const std::string& path) {
  return fs::path(path).parent_path().string();
}

/// Whether `name` is TARGET.HOST-PID.part for one of the targets.
bool is_staged_of(const std::set<std::string>& targets, const std::string& name) {
  const auto dash = name.rfind('-');
  if (!name.ends_with(staged_end) || dash == std::string::npos)
    return false;
  const auto process = std::string_view(name).substr(dash + 1);
  const auto digits = process.find_first_not_of("0123456789");
  if (digits == 0 || process.substr(digits) != staged_end)
    return false;
  for (auto dot = name.find('.'); dot + 1 < dash; dot = name.find('.', dot + 1))
    if (targets.contains(name.substr(0, dot)))
      return true;
  return false;
}

}  // namespace

void finish(Descriptor& file) {
  file.sync();
  file.close();
}

void write_file(const std::string& path, std::string_view text) {
  expect_writable_place(path);
  Descriptor file = Descriptor::regular(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write(text);
  finish(file);
}

void replace_file(const std::string& path, std::string_view text) {
  expect_writable_place(path);
  write_file(path + ".tmp", text);
  rename(path + ".tmp", path);
  sync_directory(directory_of(path));
}

StagedFile::StagedFile(std::string path) : path_(std::move(path)) {
  file_ = Descriptor(place(path_), O_RDWR | O_CREAT);
  // A process in another container may have the same pid, or be removing the file now.
  for (int number = 2; file_.lock(true) == Taken::by_another || !file_.in_place(); ++number)
    file_ = Descriptor(place(path_, fmt::format("-{}", number)), O_RDWR | O_CREAT);
  if (fs::is_regular_file(file_.path()))
    file_.rewind(0);  // left by a killed process with the same pid
}

std::string StagedFile::place(const std::string& path, const std::string& suffix) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}.{}-{}{}{}", path, host.data(), ::getpid(), suffix, staged_end);
}

StagedFile::~StagedFile() {
  if (!committed_)
    ::unlink(file_.path().c_str());
}

void StagedFile::commit() {
  file_.sync();
  rename(file_.path(), path_);
  committed_ = true;
  sync_directory(directory_of(path_));
}

void remove_abandoned(const std::string& directory, const std::set<std::string>& names) {
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(directory.empty() ? "." : directory, problem)) {
    if (!is_staged_of(names, entry.path().filename().string()))
      continue;
    try {
      const Descriptor file(entry.path().string(), O_RDWR | O_NOFOLLOW | O_NONBLOCK);
      if (file.lock(true) == Taken::yes)
        ::unlink(file.path().c_str());
    } catch (const StorageError&) {  // a remaining file is harmless
    }
  }
}

void write_staged(const std::string& path, std::string_view text) {
  StagedFile staged(path);
  staged.file().write(text);
  staged.commit();
}

Descriptor new_file(const std::string& path) {
  return {path, O_WRONLY | O_CREAT | O_EXCL};
}

void expect_new_file(const std::string& path) {
  if (exists(path))
    throw UserError(Place{path}, "this file exists already; it is not overwritten");
  expect_place_for(path);
}

void expect_place_for(const std::string& path) {
  const std::string parent = directory_of(path);
  if (::access((parent + (parent.empty() ? "." : "/.")).c_str(), W_OK | X_OK) == 0)
    return;
  const int problem = errno;
  expect_about_the_path(problem, "create " + path);
  throw UserError(Place{path},
                  fmt::format("this cannot be created: {}: {}", parent, std::strerror(problem)));
}

void write_new_file(const std::string& path, std::string_view text) {
  expect_new_file(path);
  Descriptor file = new_file(path);
  complete_new_file(path, [&] {
    file.write(text);
    finish(file);
  });
}

}  // namespace trireme::files
