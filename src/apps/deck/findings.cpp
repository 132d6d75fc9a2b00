// SPDX-License-Identifier: Apache-2.0
#include "deck/findings.hpp"

#include <algorithm>
#include <utility>

namespace trireme::deck {

bool Findings::readable(std::initializer_list<const char*> paths) const {
  return std::ranges::all_of(paths, [&](const char* path) { return places_.readable(path); });
}

void Findings::say(const std::string& path, std::string text) {
  findings_.push_back({places_.of(path), path, std::move(text)});
}

void Findings::disagree(std::vector<Side> sides) {
  bool said = false;
  for (Side& side : sides)
    if (places_.given(side.path)) {
      say(side.path, std::move(side.text));
      said = true;
    }
  if (!said)
    say(sides.front().path, std::move(sides.front().text));
}

}  // namespace trireme::deck
