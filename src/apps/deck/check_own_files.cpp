// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fnmatch.h>

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

namespace fs = std::filesystem;

/// Whether a search for text in `entry`, a directory, a glob or a file, would find `file`.
bool finds(const std::string& entry, const fs::path& file) {
  if (entry.empty())
    return false;
  std::error_code problem, not_there;
  const bool is_directory = fs::is_directory(entry, not_there);
  const fs::path inner = fs::weakly_canonical(fs::absolute(file), problem);
  const fs::path outer = is_directory ? fs::canonical(entry, problem)
                                      : (fs::absolute(entry) / "").lexically_normal().parent_path();
  const bool searches = is_directory || entry.find_first_of("*?[") != std::string::npos;
  if (problem)
    return false;
  for (fs::path at = inner; at != at.parent_path(); at = at.parent_path())
    if (is_directory ? at == outer
                     : fnmatch(outer.c_str(), at.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0)
      return true;
    else if (!searches || at.filename().string().starts_with('.'))  // hidden names are left out
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
    const std::tuple<const char*, std::string, std::vector<const char*>> own[] = {
        {"run.directory",
         config_.run.directory,
         {"/lock", "/log.txt", "/steps.jsonl", "/deck.resolved.yaml", "/run.h5"}},
        {"checkpoint.directory", config_.checkpoint.directory, {"/step-1"}},
        {"data.cache", config_.data.cache.value_or(""), {"/tokens.bin"}},
        {"record.metrics_file", config_.record.metrics_file, {""}}};
    for (const std::string& entry : text)
      for (const auto& [key, place, names] : own)
        if (!place.empty() && readable({key}) &&
            std::ranges::any_of(names, [&](auto* name) { return finds(entry, place + name); }))
          say(section + ".text",
              fmt::format("'{}' includes {}, which would be read as text. Move one of them.", entry,
                          key));
  }
};

}  // namespace

void check_own_files(const Rules& rules) {
  OwnFilesRules{rules}.check();
}

}  // namespace trireme::deck
