// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

bool names_a_group(const std::string& name) {
  const auto letter_or_digit = [](unsigned char c) { return std::isalnum(c) != 0; };
  return !name.empty() && letter_or_digit(name.front()) && std::ranges::all_of(name, [&](char c) {
    return letter_or_digit(c) || c == '.' || c == '_' || c == '-';
  });
}

struct RecordRules : Rules {
  void checkpoints_are_kept() const {
    const std::int64_t every = config_.checkpoint.every_steps, kept = config_.checkpoint.keep_every;
    if (kept == 0 || (every > 0 && kept % every == 0))
      return;
    conflict({"checkpoint.keep_every", "checkpoint.every_steps"},
             every == 0 ? "there may be no checkpoint of these steps"
                        : fmt::format("it must be a multiple. Use keep_every: {}.",
                                      multiples_near(kept, every)));
  }

  void sets_have_names_and_sources() const {
    const auto& sets = config_.evaluate.sets;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const std::string item = fmt::format("evaluate.sets[{}]", i), name = item + ".name";
      if (places_.given(name) && places_.readable(item) && places_.readable(name)) {
        if (!names_a_group(sets[i].name))
          say(name,
              "a name must consist of letters, digits and . _ -, and begin with a letter or digit");
        const auto before = sets.begin() + static_cast<std::ptrdiff_t>(i);
        if (std::any_of(sets.begin(), before,
                        [&](const auto& other) { return other.name == sets[i].name; }))
          say(name, "another set has the same name");
      }
      const int given = (sets[i].text.empty() ? 0 : 1) + (sets[i].tokens.empty() ? 0 : 1) +
                        (sets[i].multiple_choice.empty() ? 0 : 1);
      const bool known = std::ranges::all_of(
          std::initializer_list<const char*>{"", ".text", ".tokens", ".multiple_choice"},
          [&](const char* key) { return places_.readable(item + key); });
      if (given != 1 && known)
        say(item, fmt::format("give one of text, tokens and multiple_choice, not {}", given));
    }
  }
};

}  // namespace

void check_record(const Rules& rules) {
  const RecordRules record{rules};
  record.checkpoints_are_kept();
  record.sets_have_names_and_sources();
}

}  // namespace trireme::deck
