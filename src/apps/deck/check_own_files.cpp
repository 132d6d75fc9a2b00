// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fnmatch.h>

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

namespace fs = std::filesystem;

/// Whether a search for text in `entry`, a directory or a glob, would find `file`.
bool finds(const std::string& entry, const fs::path& file) {
  std::error_code problem, not_there;
  const fs::path inner = fs::weakly_canonical(fs::absolute(file), problem);
  const bool is_directory = fs::is_directory(entry, not_there);
  const fs::path outer = is_directory ? fs::canonical(entry, problem)
                                      : (fs::absolute(entry) / "").lexically_normal().parent_path();
  if (entry.empty() || problem)
    return false;
  for (fs::path at = inner; at != at.parent_path(); at = at.parent_path())
    if (is_directory ? at == outer
                     : fnmatch(outer.c_str(), at.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0)
      return true;
    else if (at.filename().string().starts_with('.'))  // hidden names are left out
      return false;
  return false;
}

struct OwnFilesRules : Rules {
  void check() const {
    const auto& train = config_.data.train;
    expect_none("data.train", train.text);
    expect_none("data.validation", config_.data.validation.text);
    for (std::size_t i = 0; i < train.mixture.size(); ++i)
      expect_none(fmt::format("data.train.mixture[{}]", i), train.mixture[i].text);
    for (std::size_t i = 0; i < config_.evaluate.sets.size(); ++i)
      expect_none(fmt::format("evaluate.sets[{}]", i), config_.evaluate.sets[i].text);
  }

 private:
  void expect_none(const std::string& section, const std::vector<std::string>& text) const {
    for (const std::string& entry : text)
      for (const char* file : {"lock", "log.txt", "steps.jsonl", "deck.resolved.yaml", "run.h5"})
        if (expect_without(section, entry, "run.directory", config_.run.directory, file))
          break;
    for (const std::string& entry : text) {
      expect_without(section, entry, "checkpoint.directory", config_.checkpoint.directory,
                     "step-1");
      expect_without(section, entry, "data.cache", config_.data.cache.value_or(""), "tokens.bin");
      expect_without(section, entry, "record.metrics_file", config_.record.metrics_file);
    }
  }

  /// Returns whether `entry` would find the path, or the file of this name in it.
  bool expect_without(const std::string& section,
                      const std::string& entry,
                      const char* key,
                      const fs::path& path,
                      const std::string& name = {}) const {
    const bool found =
        !path.empty() && readable({key}) && finds(entry, name.empty() ? path : path / name);
    if (found)
      say(section + ".text",
          fmt::format("'{}' includes {}, which would be read as text. Move one of them.", entry,
                      key));
    return found;
  }
};

}  // namespace

void check_own_files(const Rules& rules) {
  OwnFilesRules{rules}.check();
}

}  // namespace trireme::deck
