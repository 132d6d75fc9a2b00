// SPDX-License-Identifier: Apache-2.0
#include "text/spellings.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme::text {
namespace {

std::size_t byte(char c) {
  return static_cast<unsigned char>(c);
}

}  // namespace

Spellings::Spellings(std::vector<std::string> texts) : texts_(std::move(texts)) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const std::string& one = texts_[i];
    by_first_[byte(one[0])].push_back(i);
    longest_ = std::max(longest_, one.size());
    if (one.size() > 1)
      pairs_.set(byte(one[0]) * 256 + byte(one[1]));
    else
      for (std::size_t second = 0; second < 256; ++second) pairs_.set(byte(one[0]) * 256 + second);
    only_first_ = i == 0 || only_first_ == static_cast<int>(byte(one[0]))
                      ? static_cast<int>(byte(one[0]))
                      : -1;
  }
  for (auto& list : by_first_)
    std::ranges::stable_sort(list, std::ranges::greater(),
                             [&](std::size_t i) { return texts_[i].size(); });
}

std::size_t Spellings::longest_at(std::string_view text) const {
  if (text.size() < 2 || pairs_.test(byte(text[0]) * 256 + byte(text[1])))
    for (const std::size_t i : by_first_[byte(text[0])])
      if (text.starts_with(texts_[i]))
        return i;
  return texts_.size();
}

Spellings::Found Spellings::find(std::string_view text, std::size_t from) const {
  if (empty())
    return {};
  for (std::size_t at = from; at < text.size(); ++at) {
    if (only_first_ >= 0) {
      const void* const next = std::memchr(text.data() + at, only_first_, text.size() - at);
      if (next == nullptr)
        return {};
      at = static_cast<std::size_t>(static_cast<const char*>(next) - text.data());
    }
    if (const std::size_t found = longest_at(text.substr(at)); found < texts_.size())
      return {at, found};
  }
  return {};
}

bool Spellings::covers(std::string_view text, std::size_t place) const {
  for (std::size_t at = place - std::min(place, longest_); at < place; ++at)
    if (const std::size_t found = longest_at(text.substr(at));
        found < texts_.size() && at + texts_[found].size() >= place)
      return true;
  return false;
}

}  // namespace trireme::text
