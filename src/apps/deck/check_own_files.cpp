// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fnmatch.h>

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

namespace fs = std::filesystem;

/// What a search for text in `entry` reads: a file, all in a directory, or what a glob matches.
struct Search {
  explicit Search(const std::string& entry) {
    std::error_code problem;
    is_directory = fs::is_directory(entry, problem);
    goes_down = is_directory || entry.find_first_of("*?[") != std::string::npos;
    path = is_directory ? fs::canonical(entry, problem)
                        : (fs::absolute(entry, problem) / "").lexically_normal().parent_path();
  }

  [[nodiscard]] bool finds(const fs::path& file) const {
    for (fs::path at = file; at != at.parent_path(); at = at.parent_path())
      if (is_directory ? at == path
                       : fnmatch(path.c_str(), at.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0)
        return true;
      else if (!goes_down || at.filename().string().starts_with('.'))  // leaves out hidden names
        return false;
    return false;
  }

  bool is_directory = false, goes_down = false;
  fs::path path;
};

struct OwnFilesRules : Rules {
  explicit OwnFilesRules(const Rules& rules) : Rules(rules) {
    for (const char* name : {"lock", "log.txt", "steps.jsonl", "deck.resolved.yaml", "run.h5"})
      add("run.directory", config_.run.directory, name);
    add("checkpoint.directory", config_.checkpoint.directory, "step-1");
    add("data.cache", config_.data.cache.value_or(""), "tokens.bin");
    add("record.metrics_file", config_.record.metrics_file);
  }

  void check() const {
    const auto& train = config_.data.train;
    expect_none_in("data.train", train.text);
    expect_none_in("data.validation", config_.data.validation.text);
    for (std::size_t i = 0; i < train.mixture.size(); ++i)
      expect_none_in(fmt::format("data.train.mixture[{}]", i), train.mixture[i].text);
    for (std::size_t i = 0; i < config_.evaluate.sets.size(); ++i)
      expect_none_in(fmt::format("evaluate.sets[{}]", i), config_.evaluate.sets[i].text);
  }

  void expect_none_in(const std::string& section, const std::vector<std::string>& text) const {
    for (const std::string& entry : text) {
      const Search search(entry);
      std::string said;
      for (const auto& [key, file] : own)
        if (key != said && search.finds(file))
          say(section + ".text",
              fmt::format("'{}' includes {}, which would be read as text. Move one of them.", entry,
                          said = key));
    }
  }

  void add(const char* key, const std::string& place, const std::string& name = "") {
    std::error_code problem;
    const fs::path there = fs::weakly_canonical(fs::absolute(place, problem), problem);
    if (!place.empty() && readable({key}))
      own.emplace_back(key, name.empty() ? there : there / name);
  }

  std::vector<std::pair<std::string, fs::path>> own;
};

}  // namespace

void check_own_files(const Rules& rules) {
  OwnFilesRules(rules).check();
}

}  // namespace trireme::deck
